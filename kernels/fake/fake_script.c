/* SPDX-License-Identifier: Apache-2.0 */
/* fake_script: parsing. */
#include "kernels/fake/fake_script.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/limits.h"
#include "common/base/rand.h"

#define TIME_US_MAX 3600000000ull
#define WORD_MAX    4096 /* a list of some hundred steps */

/* Decimal digits at *text, below limit; moves *text behind them. */
static bool read_number(const char **text, uint64_t limit, uint64_t *ret_value)
{
    const char *p = *text;
    uint64_t value = 0;
    if (*p < '0' || *p > '9')
        return false;
    for (; *p >= '0' && *p <= '9'; p++) {
        value = value * 10 + (uint64_t)(*p - '0');
        if (value >= limit)
            return false;
    }
    *text = p;
    *ret_value = value;
    return true;
}

static bool read_time(const char *value, uint64_t *ret_us)
{
    return read_number(&value, TIME_US_MAX + 1, ret_us) && *value == '\0';
}

static bool read_list(const char *value, struct ranges *ret_steps)
{
    for (;;) {
        uint64_t first;
        uint64_t last;
        if (!read_number(&value, LIMIT_STEPS, &first))
            return false;
        last = first;
        if (*value == '-') {
            value++;
            if (!read_number(&value, LIMIT_STEPS, &last) || last < first)
                return false;
        }
        ranges_add_range(ret_steps, first, last);
        if (*value == '\0')
            return true;
        if (*value++ != ',')
            return false;
    }
}

static enum err_code read_word(struct fake_script *script, const char *word, unsigned *seen,
                               struct err *err)
{
    const struct {
        const char *name;
        uint64_t *time_us;
        struct ranges *steps;
    } rows[] = {
        {"step_us", &script->step_us, NULL},   {"jitter_us", &script->jitter_us, NULL},
        {"fail_at", NULL, &script->fail_at},   {"fail_once_at", NULL, &script->fail_once_at},
        {"crash_at", NULL, &script->crash_at}, {"hang_at", NULL, &script->hang_at},
    };
    const char *equals = strchr(word, '=');
    for (size_t i = 0; equals && i < ARRAY_SIZE(rows); i++) {
        size_t length = strlen(rows[i].name);
        if (length != (size_t)(equals - word) || strncmp(word, rows[i].name, length) != 0)
            continue;
        if (*seen & 1u << i)
            return err_set(err, ERR_INVALID, "fake script: \"%s\": %s is given twice", word,
                           rows[i].name);
        *seen |= 1u << i;
        if (rows[i].time_us ? read_time(equals + 1, rows[i].time_us)
                            : read_list(equals + 1, rows[i].steps))
            return ERR_OK;
        return err_set(err, ERR_INVALID, "fake script: \"%s\": want %s", word,
                       rows[i].time_us ? "0 to 3600000000 microseconds" : "steps like 7,9,20-29");
    }
    return err_set(
        err, ERR_INVALID,
        "fake script: \"%s\": want step_us=, jitter_us=, fail_at=, fail_once_at=, crash_at= "
        "or hang_at=",
        word);
}

enum err_code fake_script_init(struct fake_script *script, const char *text, struct err *err)
{
    memset(script, 0, sizeof(*script));
    ranges_init(&script->fail_at);
    ranges_init(&script->fail_once_at);
    ranges_init(&script->crash_at);
    ranges_init(&script->hang_at);
    unsigned seen = 0;
    enum err_code code = ERR_OK;
    for (const char *p = text ? text : ""; code == ERR_OK && *(p += strspn(p, " ")) != '\0';) {
        size_t length = strcspn(p, " ");
        char word[WORD_MAX + 1];
        if (length > WORD_MAX) {
            code = err_set(err, ERR_INVALID, "fake script: a word of %zu bytes, want up to %d",
                           length, WORD_MAX);
            break;
        }
        memcpy(word, p, length);
        word[length] = '\0';
        code = read_word(script, word, &seen, err);
        p += length;
    }
    if (code)
        fake_script_done(script);
    return code;
}

void fake_script_done(struct fake_script *script)
{
    ranges_done(&script->fail_at);
    ranges_done(&script->fail_once_at);
    ranges_done(&script->crash_at);
    ranges_done(&script->hang_at);
}

uint64_t fake_script_time_us(const struct fake_script *script, uint64_t step)
{
    uint64_t extra = script->jitter_us
                         ? rand_u64(rand_key(0, RAND_TEST, step, 0), 0) % (script->jitter_us + 1)
                         : 0;
    return script->step_us + extra;
}
