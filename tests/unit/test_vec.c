/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/device/vec.h"

#include "common/base/rand.h"
#include "tests/harness.h"

enum { MAX_COUNT = 300 };
static float x[MAX_COUNT + 1], y[MAX_COUNT + 1], z[MAX_COUNT + 1];

static void fill(void)
{
    for (size_t i = 0; i <= MAX_COUNT; i++) {
        x[i] = rand_normal(1, i);
        y[i] = z[i] = rand_normal(2, i);
    }
}

static void check_same_values(void)
{
    for (size_t i = 0; i <= MAX_COUNT; i++)
        CHECK(y[i] == z[i]);
}

/* What a processor without vector instructions would compute: one element after another, nothing
 * fused. */
TEST(elementwise_loops_give_the_bits_of_scalar_code_at_every_length)
{
    for (size_t count = 0; count <= MAX_COUNT; count++) {
        fill();
        vec_axpy(y, 0.3f, x, count);
        for (size_t i = 0; i < count; i++) {
            volatile float product = 0.3f * x[i];
            z[i] += product;
        }
        check_same_values();
        vec_add(y, x, count);
        vec_scale(y, 1.7f, count);
        for (size_t i = 0; i < count; i++)
            z[i] = (z[i] + x[i]) * 1.7f;
        check_same_values();
    }
}

TEST(sums_have_fixed_partial_sums_at_every_length)
{
    fill();
    for (size_t count = 0; count <= MAX_COUNT; count++) {
        double lanes[16] = {0};
        double plain = 0;
        for (size_t i = 0; i < count; i++) {
            lanes[i % 16] += (double)x[i] * (double)y[i];
            plain += (double)x[i] * (double)y[i];
        }
        for (size_t half = 8; half > 0; half /= 2)
            for (size_t l = 0; l < half; l++)
                lanes[l] += lanes[l + half];
        CHECK(vec_dot(x, y, count) == lanes[0]);
        CHECK_NEAR(vec_dot(x, y, count), plain, 1e-12);
    }
    CHECK(vec_sum_squares(x, 77) == vec_dot(x, x, 77));
}

TEST(a_nan_goes_through_a_sum)
{
    fill();
    x[200] = NAN;
    CHECK(isnan(vec_sum_squares(x, MAX_COUNT)));
    CHECK(!isnan(vec_sum_squares(x, 200)));
}
