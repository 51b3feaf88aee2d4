// Loaded before libc (LD_PRELOAD): lets the disk of one folder fail as a table of rules says, and records what is
// written there, synced and named. failing.py makes the table, recording.py reads the record.
//
// Writes through mmap are not seen. Of a database only the index of the log is mapped, which no power cut keeps.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { READ = 1, WRITE, SYNC, OPEN, TRUNCATE, UNLINK, RENAME, SYNC_BEGIN };

enum { MAX_FDS = 65536, RULES = 16 };

enum { KILL = 9999 };  // the error of a call that the process does not survive

// 64 bytes, as failing.py packs it. The last numbers are written here.
struct rule {
    int32_t op;        // 0: unused
    int32_t error;     // errno of a call that fails; 0 with a delay or a short one
    int32_t after;     // so many calls that match are let through first
    int32_t count;     // then so many fail; -1: all
    int32_t permille;  // the chance of each
    int32_t delay_ms;
    int32_t is_short;  // whether half of the bytes are read or written
    uint32_t random;   // state of the generator of chances; not 0
    uint32_t matched;
    uint32_t hit;
    char suffix[24];   // of the path; "" for all
};

struct record {
    uint32_t op;
    int32_t result;  // of SYNC 0 or -1; of OPEN whether the file was made
    uint64_t inode;
    uint64_t offset;  // of TRUNCATE the size
    uint32_t path_bytes;
    uint32_t data_bytes;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char *paths[MAX_FDS];  // of open files below the folder
static uint64_t inodes[MAX_FDS];
static const char *root;
static size_t root_bytes;
static int record_fd = -1;
static struct rule *rules;

#define REAL(type, name, ...)                                     \
    static type (*real)(__VA_ARGS__);                             \
    if (!real) real = (type(*)(__VA_ARGS__))dlsym(RTLD_NEXT, name)

static int real_open(const char *path, int flags, mode_t mode) {
    REAL(int, "open64", const char *, int, ...);
    return real(path, flags, mode);
}

__attribute__((constructor)) static void begin(void) {
    root = getenv("DISK_SHIM_ROOT");
    if (!root) return;
    root_bytes = strlen(root);
    const char *path = getenv("DISK_SHIM_RULES");
    if (path) {
        int fd = real_open(path, O_RDWR | O_CLOEXEC, 0);
        void *mapped = mmap(NULL, RULES * sizeof(struct rule), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (mapped != MAP_FAILED) rules = mapped;
    }
    if ((path = getenv("DISK_SHIM_RECORD"))) record_fd = real_open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
}

static int is_ours(const char *path) {
    return root && path && !strncmp(path, root, root_bytes) && (path[root_bytes] == '/' || !path[root_bytes]);
}

static char *path_of(int fd) { return fd >= 0 && fd < MAX_FDS ? paths[fd] : NULL; }

// Returns the error that a call has to fail with; 0 when it is to be carried out.
static int judge(int op, const char *path, int *is_short) {
    int error = 0;
    struct rule *holding = NULL;
    size_t bytes = strlen(path);
    if (!rules) return 0;
    pthread_mutex_lock(&lock);
    for (struct rule *rule = rules; rule < rules + RULES; rule++) {
        size_t suffix = strnlen(rule->suffix, sizeof rule->suffix);
        if (rule->op != op || suffix > bytes || memcmp(path + bytes - suffix, rule->suffix, suffix)) continue;
        if ((int32_t)rule->matched++ < rule->after) continue;
        if (rule->count >= 0 && (int32_t)rule->hit >= rule->count) continue;
        rule->random ^= rule->random << 13, rule->random ^= rule->random >> 17, rule->random ^= rule->random << 5;
        if ((int32_t)(rule->random % 1000) >= rule->permille) continue;
        rule->hit++;
        if (rule->delay_ms) holding = rule;
        if (rule->is_short && is_short) *is_short = 1;
        if (!error) error = rule->error;
    }
    pthread_mutex_unlock(&lock);
    if (error == KILL) kill(getpid(), SIGKILL);
    // Until the time is over, or the rule is taken back.
    for (int ms = 0; holding && *(volatile int32_t *)&holding->op && ms < holding->delay_ms; ms += 5)
        nanosleep(&(struct timespec){0, 5000000}, NULL);
    return error;
}

// Call with the lock, so that records are in the order of what they tell.
static void put(uint32_t op, int32_t result, uint64_t inode, uint64_t offset, const char *path, size_t path_bytes,
                const void *data, size_t data_bytes) {
    if (record_fd < 0) return;
    struct record head = {op, result, inode, offset, (uint32_t)path_bytes, (uint32_t)data_bytes};
    struct iovec parts[] = {{&head, sizeof head}, {(void *)path, path_bytes}, {(void *)data, data_bytes}};
    if (writev(record_fd, parts, 3) != (ssize_t)(sizeof head + path_bytes + data_bytes)) abort();
}

static int opening(const char *path, int flags, mode_t mode) {
    if (!is_ours(path)) return real_open(path, flags, mode);
    int error = judge(OPEN, path, NULL);
    if (error) return errno = error, -1;
    struct stat status;
    pthread_mutex_lock(&lock);
    int is_new = (flags & O_CREAT) && lstat(path, &status);
    int fd = real_open(path, flags, mode);
    if (fd >= 0 && fd < MAX_FDS && !fstat(fd, &status)) {
        free(paths[fd]);
        paths[fd] = strdup((flags & O_TMPFILE) == O_TMPFILE ? "/unnamed" : path);
        inodes[fd] = status.st_ino;
        put(OPEN, is_new, status.st_ino, 0, path, strlen(path), NULL, 0);
        if (flags & O_TRUNC) put(TRUNCATE, 0, status.st_ino, 0, NULL, 0, NULL, 0);
    }
    pthread_mutex_unlock(&lock);
    return fd;
}

#define OPENING(flags)                               \
    mode_t mode = 0;                                 \
    if ((flags) & (O_CREAT | O_TMPFILE)) {           \
        va_list rest;                                \
        va_start(rest, flags);                       \
        mode = va_arg(rest, mode_t);                 \
        va_end(rest);                                \
    }

int open(const char *path, int flags, ...) {
    OPENING(flags);
    return opening(path, flags, mode);
}

int open64(const char *path, int flags, ...) {
    OPENING(flags);
    return opening(path, flags, mode);
}

int openat(int folder, const char *path, int flags, ...) {
    OPENING(flags);
    REAL(int, "openat64", int, const char *, int, ...);
    return folder == AT_FDCWD || *path == '/' ? opening(path, flags, mode) : real(folder, path, flags, mode);
}

int openat64(int folder, const char *path, int flags, ...) {
    OPENING(flags);
    REAL(int, "openat64", int, const char *, int, ...);
    return folder == AT_FDCWD || *path == '/' ? opening(path, flags, mode) : real(folder, path, flags, mode);
}

int close(int fd) {
    REAL(int, "close", int);
    if (path_of(fd)) {
        pthread_mutex_lock(&lock);
        free(paths[fd]);
        paths[fd] = NULL;
        pthread_mutex_unlock(&lock);
    }
    return real(fd);
}

static ssize_t reading(int fd, void *data, size_t bytes, off64_t offset, int has_offset) {
    REAL(ssize_t, "pread64", int, void *, size_t, off64_t);
    static ssize_t (*plain)(int, void *, size_t);
    if (!plain) plain = (ssize_t(*)(int, void *, size_t))dlsym(RTLD_NEXT, "read");
    const char *path = path_of(fd);
    if (path) {
        int is_short = 0, error = judge(READ, path, &is_short);
        if (error) return errno = error, -1;
        if (is_short && bytes > 1) bytes /= 2;
    }
    return has_offset ? real(fd, data, bytes, offset) : plain(fd, data, bytes);
}

ssize_t read(int fd, void *data, size_t bytes) { return reading(fd, data, bytes, 0, 0); }
ssize_t pread(int fd, void *data, size_t bytes, off_t offset) { return reading(fd, data, bytes, offset, 1); }
ssize_t pread64(int fd, void *data, size_t bytes, off64_t offset) { return reading(fd, data, bytes, offset, 1); }

static ssize_t writing(int fd, const void *data, size_t bytes, off64_t offset, int has_offset) {
    REAL(ssize_t, "pwrite64", int, const void *, size_t, off64_t);
    static ssize_t (*plain)(int, const void *, size_t);
    if (!plain) plain = (ssize_t(*)(int, const void *, size_t))dlsym(RTLD_NEXT, "write");
    const char *path = path_of(fd);
    if (!path) return has_offset ? real(fd, data, bytes, offset) : plain(fd, data, bytes);
    int is_short = 0, error = judge(WRITE, path, &is_short);
    if (error) return errno = error, -1;
    if (is_short && bytes > 1) bytes /= 2;
    pthread_mutex_lock(&lock);
    if (!has_offset) offset = lseek64(fd, 0, SEEK_CUR);
    ssize_t written = has_offset ? real(fd, data, bytes, offset) : plain(fd, data, bytes);
    int saved = errno;
    if (written > 0) put(WRITE, 0, inodes[fd], offset, NULL, 0, data, written);
    pthread_mutex_unlock(&lock);
    errno = saved;
    return written;
}

ssize_t write(int fd, const void *data, size_t bytes) { return writing(fd, data, bytes, 0, 0); }
ssize_t pwrite(int fd, const void *data, size_t bytes, off_t offset) { return writing(fd, data, bytes, offset, 1); }
ssize_t pwrite64(int fd, const void *data, size_t bytes, off64_t offset) { return writing(fd, data, bytes, offset, 1); }

static void tell_sync(int op, int result, uint64_t inode) {
    pthread_mutex_lock(&lock);
    put(op, result, inode, 0, NULL, 0, NULL, 0);
    pthread_mutex_unlock(&lock);
}

// Nothing is synced for real: that would only cost time.
static int syncing(int fd) {
    char *path = path_of(fd);
    if (!path) {
        REAL(int, "fsync", int);
        return real(fd);
    }
    uint64_t inode = inodes[fd];
    tell_sync(SYNC_BEGIN, 0, inode);
    int error = judge(SYNC, path, NULL);
    tell_sync(SYNC, error ? -1 : 0, inode);
    return error ? (errno = error, -1) : 0;
}

int fsync(int fd) { return syncing(fd); }
int fdatasync(int fd) { return syncing(fd); }

static int cutting(int fd, off64_t size) {
    REAL(int, "ftruncate64", int, off64_t);
    const char *path = path_of(fd);
    if (!path) return real(fd, size);
    int error = judge(TRUNCATE, path, NULL);
    if (error) return errno = error, -1;
    pthread_mutex_lock(&lock);
    int result = real(fd, size);
    if (!result) put(TRUNCATE, 0, inodes[fd], size, NULL, 0, NULL, 0);
    pthread_mutex_unlock(&lock);
    return result;
}

int ftruncate(int fd, off_t size) { return cutting(fd, size); }
int ftruncate64(int fd, off64_t size) { return cutting(fd, size); }

int unlink(const char *path) {
    REAL(int, "unlink", const char *);
    if (!is_ours(path)) return real(path);
    int error = judge(UNLINK, path, NULL);
    if (error) return errno = error, -1;
    pthread_mutex_lock(&lock);
    int result = real(path);
    if (!result) put(UNLINK, 0, 0, 0, path, strlen(path), NULL, 0);
    pthread_mutex_unlock(&lock);
    return result;
}

int rename(const char *from, const char *to) {
    REAL(int, "rename", const char *, const char *);
    if (!is_ours(from)) return real(from, to);
    int error = judge(RENAME, from, NULL);
    if (error) return errno = error, -1;
    pthread_mutex_lock(&lock);
    int result = real(from, to);
    if (!result) put(RENAME, 0, 0, 0, from, strlen(from), to, strlen(to));
    pthread_mutex_unlock(&lock);
    return result;
}
