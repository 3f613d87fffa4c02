/* SPDX-License-Identifier: Apache-2.0 */
/* fault_hook: a parsed variable and a raise. */
#include "workerd/exchange/fault_hook.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"

static const struct {
    const char *name;
    enum fault_point point;
} points[] = {
    {"before_push", FAULT_BEFORE_PUSH},
    {"during_push", FAULT_DURING_PUSH},
    {"after_push", FAULT_AFTER_PUSH},
    {"stop_before_push", FAULT_STOP_BEFORE_PUSH},
};

enum err_code fault_hook_parse(const char *text, struct fault_hook *ret_hook, struct err *err)
{
    struct fault_hook hook = {.point = FAULT_NONE};
    if (text && text[0]) {
        const char *colon = strchr(text, ':');
        for (size_t i = 0; colon && i < ARRAY_SIZE(points); i++)
            if (strncmp(text, points[i].name, (size_t)(colon - text)) == 0 &&
                points[i].name[colon - text] == '\0')
                hook.point = points[i].point;
        char *end = NULL;
        errno = 0;
        if (colon && colon[1] >= '0' && colon[1] <= '9')
            hook.step = strtoull(colon + 1, &end, 10);
        if (hook.point == FAULT_NONE || !end || *end || errno)
            return err_set(
                err, ERR_INVALID,
                "STEADFAST_WORKER_KILL: \"%s\": want before_push:STEP, during_push:STEP, "
                "after_push:STEP or stop_before_push:STEP",
                text);
    }
    *ret_hook = hook;
    return ERR_OK;
}

bool fault_hook_is_armed(const struct fault_hook *hook, enum fault_point point, uint64_t step)
{
    return hook && hook->point == point && hook->step == step && !hook->is_spent;
}

void fault_hook_hit(struct fault_hook *hook, enum fault_point point, uint64_t step)
{
    if (!fault_hook_is_armed(hook, point, step))
        return;
    hook->is_spent = true;
    log_warn("fault.hit", "step=%" PRIu64 " point=%d: asked for by STEADFAST_WORKER_KILL", step,
             (int)point);
    raise(point == FAULT_STOP_BEFORE_PUSH ? SIGSTOP : SIGKILL);
}
