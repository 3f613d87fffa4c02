/* SPDX-License-Identifier: Apache-2.0 */
/* device: the slots that backends share. */
#include "kernels/device/device.h"

#include <errno.h>
#include <sys/mman.h>

#define HUGE_PAGE_BYTES (2u << 20)

void device_close(struct device *device)
{
    if (device)
        device->ops->close(device);
}

enum err_code device_stub_upload(struct device *device, const struct device_tensor *tensor,
                                 void *address, const void *host, struct err *err)
{
    (void)address;
    (void)host;
    return err_set(err, ERR_DEVICE, "device %s has no upload (of %s)", device->ops->name,
                   tensor->name);
}

enum err_code device_stub_download(struct device *device, const struct device_tensor *tensor,
                                   const void *address, void *host, struct err *err)
{
    (void)address;
    (void)host;
    return err_set(err, ERR_DEVICE, "device %s has no download (of %s)", device->ops->name,
                   tensor->name);
}

enum err_code device_step_begin_free(struct device *device, uint64_t step, struct err *err)
{
    (void)device;
    (void)step;
    (void)err;
    return ERR_OK;
}

enum err_code device_mark_done(struct device *device, uint64_t *ret_mark, struct err *err)
{
    (void)device;
    (void)err;
    *ret_mark = 0;
    return ERR_OK;
}

enum err_code device_wait_done(struct device *device, uint64_t mark, struct err *err)
{
    (void)device;
    (void)mark;
    (void)err;
    return ERR_OK;
}

enum err_code device_host_buf_new(struct device *device, size_t bytes, void **ret_address,
                                  struct err *err)
{
    size_t size = MAX(bytes, (size_t)1);
    /* Whole huge pages: the kernel places mappings of that size so that it can use them. */
    if (size >= HUGE_PAGE_BYTES)
        size = (size + HUGE_PAGE_BYTES - 1) / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES;
    void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return err_from_errno(err, errno, "device %s: buffer of %zu bytes", device->ops->name,
                              bytes);
    if (size >= HUGE_PAGE_BYTES)
        madvise(p, size, MADV_HUGEPAGE); /* only a hint: refused where the kernel has none */
    *ret_address = p;
    return ERR_OK;
}

void device_host_buf_free(struct device *device, void *address, size_t bytes)
{
    (void)device;
    size_t size = MAX(bytes, (size_t)1);
    if (size >= HUGE_PAGE_BYTES)
        size = (size + HUGE_PAGE_BYTES - 1) / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES;
    if (address)
        munmap(address, size);
}
