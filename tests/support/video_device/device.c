// Stands in for a loopback device of Video4Linux: /dev/video77 is the file that VIDEO_DEVICE names, which takes any format.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <linux/videodev2.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

static int device = -1;

static int opened(const char *symbol, const char *path, int flags, mode_t mode) {
    int (*real)(const char *, int, ...) = dlsym(RTLD_NEXT, symbol);
    if (strcmp(path, "/dev/video77"))
        return real(path, flags, mode);
    return device = real(getenv("VIDEO_DEVICE"), O_WRONLY | O_CREAT | O_TRUNC, 0600);
}

int open(const char *path, int flags, ...) {
    va_list rest;
    va_start(rest, flags);
    return opened("open", path, flags, va_arg(rest, mode_t));
}

int open64(const char *path, int flags, ...) {
    va_list rest;
    va_start(rest, flags);
    return opened("open64", path, flags, va_arg(rest, mode_t));
}

int ioctl(int descriptor, unsigned long request, ...) {
    int (*real)(int, unsigned long, ...) = dlsym(RTLD_NEXT, "ioctl");
    va_list rest;
    va_start(rest, request);
    void *value = va_arg(rest, void *);
    if (device < 0 || descriptor != device)
        return real(descriptor, request, value);
    return request == VIDIOC_G_FMT || request == VIDIOC_S_FMT ? 0 : -1;
}
