/* The device's side of a hostcall buffer with stacks: a thread plays a wave. */
#ifndef DEVICE_H
#define DEVICE_H

#include <hsa/hsa.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>

struct packet {
    _Atomic uint64_t next;
    _Atomic uint64_t mask;
    _Atomic uint32_t service;
    _Atomic uint32_t control;
};

struct payload {
    _Atomic uint64_t lanes[64][8];
};

struct root {
    struct packet *packets;
    struct payload *payloads;
    hsa_signal_t doorbell;
    _Atomic uint64_t free;
    _Atomic uint64_t ready;
    uint64_t index_mask;
};

static struct packet *packet_of(struct root *root, uint64_t pointer) {
    return &root->packets[pointer & root->index_mask];
}

static struct payload *payload_of(struct root *root, uint64_t pointer) {
    return &root->payloads[pointer & root->index_mask];
}

static void push(struct root *root, _Atomic uint64_t *stack, uint64_t pointer) {
    uint64_t top = atomic_load_explicit(stack, memory_order_relaxed);
    do
        atomic_store_explicit(&packet_of(root, pointer)->next, top, memory_order_relaxed);
    while (!atomic_compare_exchange_weak_explicit(stack, &top, pointer, memory_order_release, memory_order_relaxed));
}

/* Takes a free packet; waits for one. */
static uint64_t claim(struct root *root) {
    uint64_t top = atomic_load_explicit(&root->free, memory_order_acquire);
    for (;;) {
        if (top == 0) {
            sched_yield();
            top = atomic_load_explicit(&root->free, memory_order_acquire);
            continue;
        }
        uint64_t next = atomic_load_explicit(&packet_of(root, top)->next, memory_order_relaxed);
        if (atomic_compare_exchange_weak_explicit(&root->free, &top, next, memory_order_acquire, memory_order_acquire))
            return top;
    }
}

/* Submits a packet for some lanes, whose words are written, and rings. */
static void submit(struct root *root, uint64_t pointer, uint32_t service, uint64_t mask) {
    struct packet *packet = packet_of(root, pointer);
    atomic_store_explicit(&packet->service, service, memory_order_relaxed);
    atomic_store_explicit(&packet->mask, mask, memory_order_relaxed);
    atomic_store_explicit(&packet->control, 1, memory_order_relaxed);
    push(root, &root->ready, pointer);
    hsa_signal_add_screlease(root->doorbell, 1);
}

static int answered(struct root *root, uint64_t pointer) {
    return (atomic_load_explicit(&packet_of(root, pointer)->control, memory_order_acquire) & 1) == 0;
}

/* Gives a packet back. */
static void give_back(struct root *root, uint64_t pointer) {
    uint64_t step = root->index_mask + 1;
    pointer += step;
    push(root, &root->free, pointer ? pointer : step);
}

/* Calls a service for some lanes; the answers are the first two words of each. */
static void call(struct root *root, uint32_t service, uint64_t mask, uint64_t lanes[64][8]) {
    uint64_t pointer = claim(root);
    struct payload *payload = payload_of(root, pointer);
    for (int lane = 0; lane < 64; ++lane)
        if (mask >> lane & 1)
            for (int word = 0; word < 8; ++word)
                atomic_store_explicit(&payload->lanes[lane][word], lanes[lane][word], memory_order_relaxed);
    submit(root, pointer, service, mask);
    while (!answered(root, pointer))
        sched_yield();
    for (int lane = 0; lane < 64; ++lane)
        if (mask >> lane & 1)
            for (int word = 0; word < 2; ++word)
                lanes[lane][word] = atomic_load_explicit(&payload->lanes[lane][word], memory_order_relaxed);
    give_back(root, pointer);
}

#endif
