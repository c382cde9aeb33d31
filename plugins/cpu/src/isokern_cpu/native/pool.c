/* The process's one thread pool. Its size is ISOKERN_NUM_THREADS, else OMP_NUM_THREADS, else the number of processors
 * that this process may use (affinity and cgroup quota).
 *
 *     caller: open the job; take pieces until none is left; close the job; wait until no worker is in it
 *     worker: wait for an open job, first spinning, then asleep; join it; take pieces until none is left; leave
 *
 * A job never waits for a worker that has not joined it before it was closed. So on a busy machine a call costs at most
 * what it costs in one thread. A worker does not wake on the processor where its last caller ran: there the two would
 * take turns while another processor is idle, as a kernel may leave them for long. To wake workers takes longer than to
 * give work to those that spin, as they do between the calls of a program: while all are asleep, a piece must be
 * several times as large to be worth it. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "isokern_environment.h"
#include "runtime.h"

enum { MAX_THREADS = 256, SPINS = 4000, PIECES_A_THREAD = 4, GRAINS_TO_WAKE = 4 };

static int32_t threads; /* the caller's and the workers */
static int32_t started; /* workers; they start on first use */
static pthread_mutex_t owner = PTHREAD_MUTEX_INITIALIZER; /* locked by the caller whose job runs */
static pthread_mutex_t sleep_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t wake = PTHREAD_COND_INITIALIZER;

static struct {
    ik_task *task;
    void *context;
    int64_t n, piece;
    _Atomic int processor; /* the caller's, or -1 */
} job;
static _Atomic int64_t next; /* first index not handed out */
static _Atomic int32_t sleepers;

/* Job number << 32 | CLOSED | workers in the job. A worker joins by adding 1, only while the number is new to it and
 * CLOSED is not set, and leaves by subtracting 1. */
static _Atomic uint64_t state = UINT64_C(1) << 31;
static const uint64_t CLOSED = UINT64_C(1) << 31;

static inline void pause_cpu(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static void take_pieces(int32_t worker)
{
    for (;;) {
        int64_t begin = atomic_fetch_add_explicit(&next, job.piece, memory_order_relaxed);
        if (begin >= job.n)
            return;
        int64_t end = begin + job.piece < job.n ? begin + job.piece : job.n;
        job.task(job.context, begin, end, worker);
    }
}

static bool is_new(uint64_t now, uint64_t seen) { return now >> 32 != seen && (now & CLOSED) == 0; }

#ifdef __linux__
typedef struct processors {
    cpu_set_t all, others; /* those of this worker, and those that it has while it is asleep, where `limited` */
    bool limited;
} processors;

static int own_processor(void) { return sched_getcpu(); }

/* Leave the processor of the last caller to it, if there are enough for all threads. */
static processors limit_processors(void)
{
    processors p;
    const int taken = atomic_load_explicit(&job.processor, memory_order_relaxed);
    p.limited = taken >= 0 && taken < CPU_SETSIZE && sched_getaffinity(0, sizeof p.all, &p.all) == 0
        && CPU_COUNT(&p.all) >= threads;
    if (p.limited) {
        p.others = p.all;
        CPU_CLR(taken, &p.others);
        p.limited = sched_setaffinity(0, sizeof p.others, &p.others) == 0;
    }
    return p;
}

/* Undo it, unless someone has chosen other processors for this thread since. */
static void restore_processors(const processors *p)
{
    cpu_set_t now;
    if (p->limited && sched_getaffinity(0, sizeof now, &now) == 0 && CPU_EQUAL(&now, &p->others))
        (void)sched_setaffinity(0, sizeof p->all, &p->all);
}
#else
typedef struct processors {
    bool limited;
} processors;

static int own_processor(void) { return -1; }
static processors limit_processors(void) { return (processors){ false }; }
static void restore_processors(const processors *p) { (void)p; }
#endif

/* Wait for a job that this worker has not seen, join it, and return its number. */
static uint64_t join(uint64_t seen)
{
    for (int spin = 0;; spin++) {
        uint64_t now = atomic_load_explicit(&state, memory_order_acquire);
        if (is_new(now, seen)) {
            if (atomic_compare_exchange_weak_explicit(
                    &state, &now, now + 1, memory_order_acq_rel, memory_order_relaxed))
                return now >> 32;
        } else if (spin < SPINS) {
            pause_cpu();
        } else {
            const processors own = limit_processors();
            pthread_mutex_lock(&sleep_lock);
            atomic_fetch_add(&sleepers, 1);
            while (!is_new(atomic_load(&state), seen))
                pthread_cond_wait(&wake, &sleep_lock);
            atomic_fetch_sub(&sleepers, 1);
            pthread_mutex_unlock(&sleep_lock);
            restore_processors(&own);
            spin = 0;
        }
    }
}

static void *work(void *argument)
{
    uint64_t seen = 0;
    (void)ik_enter_environment(); /* the thread that starts the workers may have another one */
    for (;;) {
        seen = join(seen);
        take_pieces((int32_t)(intptr_t)argument);
        atomic_fetch_sub_explicit(&state, 1, memory_order_release);
    }
    return NULL;
}

static void start_workers(void)
{
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    while (started < threads - 1) {
        pthread_t id;
        if (pthread_create(&id, &attributes, work, (void *)(intptr_t)(started + 1)) != 0)
            break;
        started++;
    }
    pthread_attr_destroy(&attributes);
}

void ik_parallel_for(int64_t n, int64_t grain, ik_task *task, void *context)
{
    if (n <= 0)
        return;
    grain = grain > 1 ? grain : 1;
    if (threads == 1 || n <= grain || pthread_mutex_trylock(&owner) != 0) {
        task(context, 0, n, 0);
        return;
    }
    if (started < threads - 1)
        start_workers();
    if (grain > 1 && atomic_load_explicit(&sleepers, memory_order_relaxed) >= started)
        grain = grain < n / GRAINS_TO_WAKE ? grain * GRAINS_TO_WAKE : n;
    if (n <= grain) {
        pthread_mutex_unlock(&owner);
        task(context, 0, n, 0);
        return;
    }
    const int64_t pieces = (int64_t)(started + 1) * PIECES_A_THREAD, fair = (n + pieces - 1) / pieces;
    job.task = task;
    job.context = context;
    job.n = n;
    atomic_store_explicit(&job.processor, own_processor(), memory_order_relaxed);
    job.piece = fair > grain ? fair : grain;
    atomic_store_explicit(&next, 0, memory_order_relaxed);
    uint64_t number = (atomic_load_explicit(&state, memory_order_relaxed) >> 32) + 1;
    atomic_store(&state, (number & 0xffffffffu) << 32);
    if (atomic_load(&sleepers) > 0) {
        pthread_mutex_lock(&sleep_lock);
        pthread_cond_broadcast(&wake);
        pthread_mutex_unlock(&sleep_lock);
    }
    take_pieces(0);
    atomic_fetch_or(&state, CLOSED);
    for (int spin = 0; (atomic_load_explicit(&state, memory_order_acquire) & (CLOSED - 1)) != 0; spin++) {
        if (spin < SPINS)
            pause_cpu();
        else
            sched_yield();
    }
    pthread_mutex_unlock(&owner);
}

int32_t ik_threads(void) { return threads; }

/* Number of processors that the cgroup's quota allows, or 0 where there is no quota (cgroup v2, then v1). */
static int32_t read_quota(void)
{
    long long limit = -1, period = 100000;
    char word[32];
    FILE *file = fopen("/sys/fs/cgroup/cpu.max", "r");
    if (file != NULL) {
        if (fscanf(file, "%31s %lld", word, &period) == 2 && strcmp(word, "max") != 0)
            limit = atoll(word);
        fclose(file);
    } else if ((file = fopen("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "r")) != NULL) {
        if (fscanf(file, "%lld", &limit) != 1)
            limit = -1;
        fclose(file);
        if ((file = fopen("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "r")) != NULL) {
            if (fscanf(file, "%lld", &period) != 1)
                period = 100000;
            fclose(file);
        }
    }
    return limit > 0 && period > 0 ? (int32_t)((limit + period - 1) / period) : 0;
}

static int32_t count_processors(void)
{
#ifdef __linux__
    cpu_set_t set;
    int32_t count = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
#else
    int32_t count = (int32_t)sysconf(_SC_NPROCESSORS_ONLN);
#endif
    int32_t quota = read_quota();
    return quota > 0 && quota < count ? quota : count;
}

/* A forked child has none of the workers: it starts its own. */
static void after_fork(void)
{
    started = 0;
    atomic_store(&sleepers, 0);
    atomic_store(&state, (atomic_load(&state) >> 32 << 32) | CLOSED);
    pthread_mutex_init(&owner, NULL);
    pthread_mutex_init(&sleep_lock, NULL);
    pthread_cond_init(&wake, NULL);
}

__attribute__((constructor)) static void choose_threads(void)
{
    const char *given = getenv("ISOKERN_NUM_THREADS");
    if (given == NULL || atoi(given) < 1)
        given = getenv("OMP_NUM_THREADS");
    threads = given != NULL && atoi(given) >= 1 ? atoi(given) : count_processors();
    threads = threads < 1 ? 1 : threads > MAX_THREADS ? MAX_THREADS : threads;
    pthread_atfork(NULL, NULL, after_fork);
}
