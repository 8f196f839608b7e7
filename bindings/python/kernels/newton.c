/* The demo's kernel: Newton's method from each point of a part of the plane, for a function that only Python knows. */
#include "hostcall_device.h"

#include <math.h>

/* Those of the class `Function` in demo.py. */
#define FUNCTION_STEPS HOSTCALL_METHOD(700, 0)
#define FUNCTION_ROW_DONE HOSTCALL_METHOD(701, 0)

#define MOST_ROUNDS 40

/* What all rows have in common. */
struct picture {
    uint64_t context;
    uint32_t width, height;
    double left, top, step;
    unsigned char *rgb; /* Three bytes a point. */
};

static unsigned char shade(double hue, double bright) {
    double far = fabs(fmod(hue + 6.0, 6.0) - 3.0) - 1.0;
    far = far < 0.0 ? 0.0 : far > 1.0 ? 1.0 : far;
    return (unsigned char)(255.0 * bright * (0.15 + 0.85 * far));
}

/* Computes a row; `scratch` has four numbers a point. Returns the status of the call that failed, or 0. */
uint64_t hostcall_demo_row(const struct picture *picture, uint32_t row, double *scratch) {
    const uint32_t width = picture->width;
    double *points = scratch, *steps = scratch + 2 * width;
    uint64_t rounds = 0, bytes = 16u * (uint64_t)width, post[2];
    unsigned char *rgb = picture->rgb + 3u * (uint64_t)width * row;
    for (uint32_t i = 0; i < width; i++) {
        points[2 * i] = picture->left + picture->step * i;
        points[2 * i + 1] = picture->top - picture->step * row;
        rgb[3 * i] = 0; /* Rounds that the point took, until there is a colour. */
    }
    for (uint32_t moved = 1; moved && rounds < MOST_ROUNDS; rounds++) {
        /* f(z) / f'(z) of all points of the row: the kernel cannot compute it, and Python need not know why it is asked. */
        struct hostcall_bytes call = {&bytes, 1, 0, points, bytes, 0, steps, bytes, 0, 0, 0};
        uint64_t status = hostcall_call_bytes(picture->context, FUNCTION_STEPS, &call, 0);
        if (status != HOSTCALL_CALL_OK)
            return status;
        moved = 0;
        for (uint32_t i = 0; i < width; i++) {
            const double x = steps[2 * i], y = steps[2 * i + 1];
            /* Also where a step is no number. */
            if (!(x * x + y * y > 1e-12 && x * x + y * y < 1e12))
                continue;
            points[2 * i] -= x;
            points[2 * i + 1] -= y;
            rgb[3 * i]++;
            moved = 1;
        }
    }
    for (uint32_t i = 0; i < width; i++) {
        /* Which root it went to has the hue, how soon the brightness. */
        const double hue = 3.0 / 3.14159265358979 * atan2(points[2 * i + 1], points[2 * i]) + 3.0;
        const double bright = 1.0 / (1.0 + 0.012 * rgb[3 * i] * rgb[3 * i]);
        for (int colour = 0; colour < 3; colour++)
            rgb[3 * i + colour] = shade(hue - 2.0 * colour + 3.0, bright);
    }
    post[0] = row;
    post[1] = rounds;
    hostcall_post_words(picture->context, FUNCTION_ROW_DONE, post, 2);
    return 0;
}
