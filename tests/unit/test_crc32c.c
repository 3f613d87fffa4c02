/* SPDX-License-Identifier: Apache-2.0 */
#include "common/base/crc32c.h"
#include "common/base/rand.h"
#include "tests/harness.h"

TEST(the_vectors_of_rfc_3720_come_out)
{
    unsigned char data[32];
    memset(data, 0, sizeof(data));
    CHECK_U64(crc32c(0, data, 32), 0x8a9136aa);
    memset(data, 0xff, sizeof(data));
    CHECK_U64(crc32c(0, data, 32), 0x62a8ab43);
    for (unsigned i = 0; i < 32; i++)
        data[i] = (unsigned char)i;
    CHECK_U64(crc32c(0, data, 32), 0x46dd794e);
    CHECK_U64(crc32c(0, "123456789", 9), 0xe3069283);
    CHECK_U64(crc32c(0, "", 0), 0);
}

TEST(the_table_and_the_instruction_agree_at_every_length_and_offset)
{
    unsigned char data[300];
    for (size_t i = 0; i < sizeof(data); i++)
        data[i] = (unsigned char)rand_u64(7, i);
    for (size_t offset = 0; offset < 9; offset++)
        for (size_t bytes = 0; bytes < 280; bytes++)
            CHECK_U64(crc32c(0, data + offset, bytes), crc32c_by_table(0, data + offset, bytes));
}

TEST(pieces_give_the_checksum_of_the_whole)
{
    unsigned char data[1000];
    for (size_t i = 0; i < sizeof(data); i++)
        data[i] = (unsigned char)rand_u64(8, i);
    uint32_t whole = crc32c(0, data, sizeof(data));
    for (size_t cut = 0; cut <= sizeof(data); cut += 13)
        CHECK_U64(crc32c(crc32c(0, data, cut), data + cut, sizeof(data) - cut), whole);
}
