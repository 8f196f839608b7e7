/* Prints: clang takes for `printf` what ROCm's device libraries have of that name. */
kernel void prints(global ulong *out) {
    out[0] = 7;
    printf("%d %s\n", 5, "text");
}

kernel void quiet(global ulong *out) { out[0] = 8; }
