/* SPDX-License-Identifier: Apache-2.0 */
/* A job's status as a message, whatever its size: what one reply may be is not exceeded. */
#include <stdlib.h>
#include <string.h>

#include "common/spec/job_spec.h"
#include "coordinatord/shell/coord_int.h"
#include "tests/harness.h"

TEST(a_status_of_65536_shards_fits_into_one_message_and_reads_back)
{
    enum { SHARDS = 65536 };
    struct core_shard_view *shards = base_alloc(SHARDS * sizeof(*shards));
    for (uint32_t i = 0; i < SHARDS; i++)
        shards[i] = (struct core_shard_view){
            .server = "ps:255", .shard = i, .applied = (1ull << 47) + i, .bytes = 1ull << 40};
    static const char *const notices[] = {"a notice"};
    const struct job_spec spec = {.epochs = 3};
    struct core_job_view view = {.job = 7,
                                 .name = "large",
                                 .spec = &spec,
                                 .phase = "training",
                                 .reason = "",
                                 .shards = shards,
                                 .shard_count = SHARDS,
                                 .notices = notices,
                                 .notice_count = 1};
    Steadfast__V1__JobStatus status;
    coord_status_fill(&view, &status);
    size_t bytes = steadfast__v1__job_status__get_packed_size(&status);
    CHECK(bytes > SHARDS && bytes < LIMIT_RPC_MESSAGE_BYTES);
    AUTO_MEM uint8_t *packed = base_alloc(bytes);
    steadfast__v1__job_status__pack(&status, packed);
    coord_status_done(&status);
    Steadfast__V1__JobStatus *back = steadfast__v1__job_status__unpack(NULL, bytes, packed);
    CHECK(back && back->n_shards == SHARDS && back->n_notices == 1);
    CHECK_U64(back->shards[SHARDS - 1]->applied, (1ull << 47) + SHARDS - 1);
    CHECK(strcmp(back->shards[SHARDS - 1]->server, "ps:255") == 0);
    steadfast__v1__job_status__free_unpacked(back, NULL);
    free(shards);
}
