/* SPDX-License-Identifier: Apache-2.0 */
/* fake_script: what a fake device is told to do, read from one line.
 *
 *   script := word { ' ' word }
 *   word   := "step_us=" N         every training step takes N microseconds
 *           | "jitter_us=" N       plus 0 to N more, drawn from the step's number
 *           | "fail_at=" list      these steps fail with ERR_DEVICE, each time they are tried
 *           | "fail_once_at=" list ... only the first time this device meets them
 *           | "crash_at=" list     the process is killed (SIGKILL) at these steps
 *           | "hang_at=" list      these steps never end
 *   list   := item { ',' item }    item := N | N '-' M
 *
 * N is decimal; microseconds up to an hour, steps below LIMIT_STEPS. Each word at most once. At one
 * step the order is crash, hang, time, fail.
 *
 * Owns    its ranges. Thread: the owner's.
 * Errors  ERR_INVALID names the word.
 */
#ifndef KERNELS_FAKE_FAKE_SCRIPT_H
#define KERNELS_FAKE_FAKE_SCRIPT_H

#include "common/base/base.h"
#include "common/base/err.h"
#include "common/base/ranges.h"

struct fake_script {
    uint64_t step_us;
    uint64_t jitter_us;
    struct ranges fail_at;
    struct ranges fail_once_at; /* what has failed is taken out */
    struct ranges crash_at;
    struct ranges hang_at;
};

/* text NULL or empty: takes no time and never fails. On failure script is as after
 * fake_script_done. */
MUST_CHECK enum err_code fake_script_init(struct fake_script *script, const char *text,
                                          struct err *err);
void fake_script_done(struct fake_script *script);
/* Microseconds that the step takes. */
uint64_t fake_script_time_us(const struct fake_script *script, uint64_t step);

#endif
