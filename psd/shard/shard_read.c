/* SPDX-License-Identifier: Apache-2.0 */
/* shard_read: what others see of a shard's jobs (values, states, marks), and what the coordinator
 * keeps for readers (pins) and says of them (the watermark). */
#include <inttypes.h>

#include "psd/shard/shard_int.h"

enum err_code shard_pull(struct shard *shard, uint64_t job, uint64_t generation, uint64_t pin,
                         struct buf **ret_values, uint64_t *ret_version, struct err *err)
{
    struct err why = {0};
    shard_lock(shard);
    struct shard_job *it = shard_find_generation(shard, job, generation, &why);
    if (it && pin == 0) {
        *ret_values = buf_ref(it->values->now);
        *ret_version = it->values->version;
    } else if (it) {
        size_t i = 0;
        while (i < it->pin_count && it->pins[i].pin != pin)
            i++;
        if (i < it->pin_count) {
            *ret_values = buf_ref(it->pins[i].buf);
            *ret_version = it->pins[i].version;
        } else {
            err_set(&why, ERR_NOT_FOUND, "shard %u: job %" PRIu64 " has no pin %" PRIu64,
                    shard->index, job, pin);
        }
    }
    shard_unlock(shard);
    return why.code == ERR_OK ? ERR_OK : err_set(err, why.code, "%s", why.text);
}

size_t shard_states(struct shard *shard, struct shard_state *states, size_t max)
{
    size_t count = 0;
    shard_lock(shard);
    for (struct shard_job *it = shard->jobs; it; it = it->next, count++) {
        if (count >= max)
            continue;
        const struct values *values = it->values;
        struct ranges marks;
        ranges_init(&marks);
        values_common_marks(values, &marks);
        states[count] =
            (struct shard_state){.job = it->job,
                                 .generation = it->generation,
                                 .version = values->version,
                                 .applied = values_applied(values),
                                 .bytes = values_bytes(values) * (1 + values->optim->slot_count),
                                 .duplicates_refused = it->duplicates_refused,
                                 .fenced = it->fenced,
                                 .marked = ranges_total(&marks),
                                 .repeated_applies = values_repeated(values),
                                 .groups = (uint32_t)values->group_count};
        ranges_done(&marks);
    }
    shard_unlock(shard);
    return count;
}

bool shard_marks(struct shard *shard, uint64_t job, struct ranges *ret_marks)
{
    shard_lock(shard);
    struct shard_job *it = shard_find(shard, job);
    if (it) {
        ranges_init(ret_marks);
        values_common_marks(it->values, ret_marks);
    }
    shard_unlock(shard);
    return it != NULL;
}

enum err_code shard_prune(struct shard *shard, uint64_t job, uint64_t generation,
                          uint64_t watermark, struct err *err)
{
    struct err why = {0};
    shard_lock(shard);
    struct shard_job *it = shard_find_generation(shard, job, generation, &why);
    if (it)
        it->watermark = MAX(it->watermark, watermark);
    shard_unlock(shard);
    return it ? ERR_OK : err_set(err, why.code, "%s", why.text);
}

/* Pins of a coordinator that died: nobody will let go of them. Its start number is a pin's upper
 * half. */
static size_t take_dead_pins(struct shard_job *it, uint64_t pin, struct buf **ret_dead)
{
    size_t dead = 0;
    for (size_t i = it->pin_count; i-- > 0;) {
        if (it->pins[i].pin >> 32 >= pin >> 32)
            continue;
        ret_dead[dead++] = it->pins[i].buf;
        it->pins[i] = it->pins[--it->pin_count];
    }
    return dead;
}

enum err_code shard_pin(struct shard *shard, uint64_t job, uint64_t generation, uint64_t pin,
                        struct err *err)
{
    struct err why = {0};
    struct buf *dead[LIMIT_PINS];
    size_t dead_count = 0;
    if (pin == 0)
        return err_set(err, ERR_INVALID, "pin 0, want 1 or more (0 reads the newest)");
    shard_lock(shard);
    struct shard_job *it = shard_find_generation(shard, job, generation, &why);
    if (it) {
        dead_count = take_dead_pins(it, pin, dead);
        size_t i = 0;
        while (i < it->pin_count && it->pins[i].pin != pin)
            i++;
        if (i == LIMIT_PINS)
            err_set(&why, ERR_FULL, "shard %u: job %" PRIu64 " has %d pins, the most there can be",
                    shard->index, job, LIMIT_PINS);
        else if (i == it->pin_count)
            it->pins[it->pin_count++] = (struct pin){
                .pin = pin, .version = it->values->version, .buf = buf_ref(it->values->now)};
    }
    shard_unlock(shard);
    while (dead_count > 0)
        buf_unref(dead[--dead_count]);
    return why.code == ERR_OK ? ERR_OK : err_set(err, why.code, "%s", why.text);
}

void shard_unpin(struct shard *shard, uint64_t job, uint64_t pin)
{
    struct buf *buf = NULL;
    shard_lock(shard);
    struct shard_job *it = shard_find(shard, job);
    for (size_t i = 0; it && i < it->pin_count; i++) {
        if (it->pins[i].pin == pin) {
            buf = it->pins[i].buf;
            it->pins[i] = it->pins[--it->pin_count];
            break;
        }
    }
    shard_unlock(shard);
    buf_unref(buf);
}
