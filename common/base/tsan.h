/* SPDX-License-Identifier: Apache-2.0 */
/* tsan: tells the thread sanitizer about an order that a library makes where it cannot see it (gRPC's
 * queue, libgomp's teams). What was done before release of an address is seen after acquire of it.
 * Nothing in other builds.
 *
 * Owns    nothing. Thread: any.
 */
#ifndef COMMON_BASE_TSAN_H
#define COMMON_BASE_TSAN_H

#if defined(__SANITIZE_THREAD__)
#define HAS_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define HAS_TSAN 1
#endif
#endif
#ifndef HAS_TSAN
#define HAS_TSAN 0
#endif

#if HAS_TSAN
void __tsan_release(void *addr);
void __tsan_acquire(void *addr);
#endif

static inline void tsan_release(void *address)
{
#if HAS_TSAN
    __tsan_release(address);
#else
    (void)address;
#endif
}

static inline void tsan_acquire(void *address)
{
#if HAS_TSAN
    __tsan_acquire(address);
#else
    (void)address;
#endif
}

#endif
