/* SPDX-License-Identifier: Apache-2.0 */
/* cpu_team: pieces of a loop, taken one after another by whoever is free. */
#include "kernels/cpu/cpu_team.h"

#include <stdatomic.h>

#include "common/base/tsan.h"

/* libgomp's, which oneDNN is linked with. Declared here and called as they are: <omp.h> and
 * "#pragma omp" belong to the compiler, and Clang's would bring a second runtime with threads of its
 * own. */
void omp_set_num_threads(int threads);
void GOMP_parallel(void (*run)(void *), void *arg, unsigned threads, unsigned flags);

/* A piece has to be worth waking a thread for: some 10 us where the waiting is passive. This many
 * floats take 20 us from the second-level cache and longer from memory. */
#define PIECE_COST 65536
/* More pieces than threads, so that one whose core is taken away does not keep the others waiting
 * for a whole share. */
#define PIECES_PER_THREAD 4

struct team {
    void (*run)(const void *arg, size_t first, size_t end);
    const void *arg;
    size_t units;
    size_t pieces;
    _Atomic size_t next; /* the first piece that nobody has taken */
    _Atomic size_t done;
};

/* libgomp starts the threads after the caller's writes and the caller goes on after theirs, out of
 * the thread sanitizer's sight. */
static void take_pieces(void *arg)
{
    struct team *team = arg;
    tsan_acquire(team);
    for (;;) {
        size_t piece = atomic_fetch_add_explicit(&team->next, 1, memory_order_acq_rel);
        if (piece >= team->pieces)
            break;
        team->run(team->arg, team->units * piece / team->pieces,
                  team->units * (piece + 1) / team->pieces);
        atomic_fetch_add_explicit(&team->done, 1, memory_order_acq_rel);
    }
    tsan_release(team);
}

void cpu_team_open(uint32_t threads)
{
    omp_set_num_threads((int)threads);
}

void cpu_team_run(uint32_t threads, void (*run)(const void *arg, size_t first, size_t end),
                  const void *arg, size_t units, size_t unit_cost)
{
    size_t worth = units / MAX(PIECE_COST / MAX(unit_cost, (size_t)1), (size_t)1);
    size_t pieces = MIN(worth, (size_t)threads * PIECES_PER_THREAD);
    if (threads <= 1 || pieces < 2) {
        run(arg, 0, units);
        return;
    }
    struct team team = {.run = run, .arg = arg, .units = units, .pieces = pieces};
    atomic_store_explicit(&team.next, 0, memory_order_release);
    tsan_release(&team);
    GOMP_parallel(take_pieces, &team, (unsigned)MIN((size_t)threads, pieces), 0);
    tsan_acquire(&team);
    ASSERT(atomic_load_explicit(&team.done, memory_order_acquire) == pieces);
}
