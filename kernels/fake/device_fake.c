/* SPDX-License-Identifier: Apache-2.0 */
/* device_fake: acts out its script at the start of each step. */
#include "kernels/fake/device_fake.h"

#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "kernels/fake/fake_script.h"

struct fake_device {
    struct device base;
    struct fake_script script;
    uint64_t step;
};

static enum err_code fake_open(const struct device_options *options, struct device **ret_device,
                               struct err *err)
{
    struct fake_device *fake = base_alloc(sizeof(*fake));
    fake->base.ops = &device_fake_ops;
    if (fake_script_init(&fake->script, options->fake_script, err)) {
        free(fake);
        return ERR_INVALID;
    }
    *ret_device = &fake->base;
    return ERR_OK;
}

static void fake_close(struct device *device)
{
    struct fake_device *fake = CONTAINER_OF(device, struct fake_device, base);
    fake_script_done(&fake->script);
    free(fake);
}

static enum err_code fake_tensor_init(struct device *device, struct device_tensor *tensor,
                                      struct err *err)
{
    (void)device;
    (void)err;
    tensor->layout = DEVICE_LAYOUT_CANONICAL;
    tensor->bytes = 0;
    return ERR_OK;
}

static enum err_code fake_upload(struct device *device, const struct device_tensor *tensor,
                                 void *address, const void *host, struct err *err)
{
    (void)device;
    (void)tensor;
    (void)address;
    (void)host;
    (void)err;
    return ERR_OK;
}

float device_fake_loss(uint64_t step)
{
    return (float)(M_LN10 / (1.0 + (double)step / 1000.0));
}

static enum err_code fake_download(struct device *device, const struct device_tensor *tensor,
                                   const void *address, void *host, struct err *err)
{
    (void)address;
    (void)err;
    struct fake_device *fake = CONTAINER_OF(device, struct fake_device, base);
    if (tensor->shape.rank == 0) /* of what crosses to the host, only the loss has no dims */
        *(float *)host = device_fake_loss(fake->step);
    else
        memset(host, 0, tensor_shape_elements(&tensor->shape, 0) * sizeof(float));
    return ERR_OK;
}

static enum err_code fake_op_new(struct device *device, const struct graph_node *node,
                                 struct device_tensor *const *in, struct device_tensor *const *out,
                                 struct device_op **ret_op, struct err *err)
{
    (void)device;
    (void)in;
    (void)err;
    for (size_t i = 0; i < node->out_count; i++)
        if (out[i])
            out[i]->bytes = 0;
    *ret_op = base_alloc(sizeof(**ret_op));
    return ERR_OK;
}

static void fake_op_free(struct device *device, struct device_op *op)
{
    (void)device;
    free(op);
}

static enum err_code fake_op_run(struct device *device, struct device_op *op,
                                 const struct device_call *call, struct err *err)
{
    (void)device;
    (void)op;
    (void)call;
    (void)err;
    return ERR_OK;
}

static void sleep_us(uint64_t us)
{
    struct timespec left = {.tv_sec = (time_t)(us / 1000000),
                            .tv_nsec = (long)(us % 1000000 * 1000)};
    while (clock_nanosleep(CLOCK_MONOTONIC, 0, &left, &left) != 0)
        ;
}

static enum err_code fake_step_begin(struct device *device, uint64_t step, struct err *err)
{
    struct fake_device *fake = CONTAINER_OF(device, struct fake_device, base);
    struct fake_script *script = &fake->script;
    fake->step = step;
    if (ranges_has(&script->crash_at, step))
        raise(SIGKILL);
    while (ranges_has(&script->hang_at, step))
        pause();
    uint64_t us = fake_script_time_us(script, step);
    if (us > 0)
        sleep_us(us);
    bool fails = ranges_has(&script->fail_at, step);
    if (ranges_has(&script->fail_once_at, step)) {
        ranges_remove_range(&script->fail_once_at, step, step);
        fails = true;
    }
    return fails
               ? err_set(err, ERR_DEVICE, "device fake: step %" PRIu64 " fails by its script", step)
               : ERR_OK;
}

const struct device_ops device_fake_ops = {
    .name = "fake",
    .is_host = false,
    .open = fake_open,
    .close = fake_close,
    .buf_new = device_host_buf_new,
    .buf_free = device_host_buf_free,
    .tensor_init = fake_tensor_init,
    .upload = fake_upload,
    .download = fake_download,
    .op_new = fake_op_new,
    .op_free = fake_op_free,
    .op_run = fake_op_run,
    .step_begin = fake_step_begin,
    .mark = device_mark_done,
    .wait = device_wait_done,
};
