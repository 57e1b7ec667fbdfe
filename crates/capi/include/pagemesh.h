/* pagemesh.h - shared memory between the processes of several hosts.
 *
 * A process talks to the PageMesh daemon of its host. It creates or opens a
 * segment by name, maps it, and from then on uses memory by plain loads and
 * stores: the daemon fetches a page when a thread touches one that is
 * elsewhere. Under the default policy every load sees the latest store made
 * anywhere. Memory that can never be served again raises SIGBUS at its address.
 *
 * Errors. Functions that return int or ssize_t return -1, functions that
 * return a pointer return NULL, and errno says why; pagemesh_error() says it
 * more exactly, and pagemesh_error_message() in words, with the cure. Both are
 * per thread and tell of the last call that failed.
 *
 * Threads. All functions may be called from all threads at once, except that a
 * handle must not be used while or after it is closed.
 *
 * Signals. A wait without time limit ends with EINTR if a signal handler
 * installed without SA_RESTART ran in the waiting thread, a wait with time
 * limit after any handler. Nothing has happened then: call again. Calls that
 * wait for no other process (open, create, map, list, ...) go on in spite of
 * signals; they end with EINTR only if the daemon has not answered 2 s later.
 *
 * Fork. A child goes on with all handles and mappings of its parent, as a
 * process of its own; the locks its parent holds stay its parent's. If the
 * daemon cannot be asked, the child says so on its error output; then its
 * accesses end in SIGSEGV, and its calls fail with ESTALE until it connects
 * anew. exec and exit end everything in order.
 *
 * Memory. munmap of a whole mapping does what pagemesh_unmap does. munmap of
 * a part, mmap with MAP_FIXED over a mapping, mremap of one, and advice to
 * remove its pages are refused with EINVAL (mmap: EEXIST).
 *
 * Link with -lpagemesh (pkg-config pagemesh). C99 and C++98 on Linux.
 */
#ifndef PAGEMESH_H
#define PAGEMESH_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Version ---- */

#define PAGEMESH_VERSION_MAJOR 0
#define PAGEMESH_VERSION_MINOR 1
#define PAGEMESH_VERSION_PATCH 0
#define PAGEMESH_VERSION "0.1.0"
#define PAGEMESH_VERSION_NUMBER \
    (PAGEMESH_VERSION_MAJOR * 10000 + PAGEMESH_VERSION_MINOR * 100 + PAGEMESH_VERSION_PATCH)

/* The version of the library that runs, as PAGEMESH_VERSION. */
const char *pagemesh_version(void);

/* The version of the library that runs, as PAGEMESH_VERSION_NUMBER. */
unsigned pagemesh_version_number(void);

/* ---- Errors ---- */

/* What pagemesh_error() returns. The numbers never change. */
enum pagemesh_error_number {
    PAGEMESH_OK = 0,
    PAGEMESH_E_NO_DAEMON = 1,       /* ECONNREFUSED  no daemon answers, or EACCES: it may not be asked */
    PAGEMESH_E_DAEMON_GONE = 2,     /* ECONNRESET    the daemon closed the connection */
    PAGEMESH_E_DAEMON_SILENT = 3,   /* EREMOTEIO     the daemon does not answer; outcome unknown */
    PAGEMESH_E_MALFORMED = 4,       /* EPROTO        daemon and library do not understand each other */
    PAGEMESH_E_NOT_FOUND = 5,       /* ENOENT        no segment of that name */
    PAGEMESH_E_EXISTS = 6,          /* EEXIST        a segment of that name exists already */
    PAGEMESH_E_PERMISSION = 7,      /* EACCES        owner, group and mode do not allow it */
    PAGEMESH_E_BAD_NAME = 8,        /* EINVAL        1 to 255 bytes, neither '/' nor NUL */
    PAGEMESH_E_BAD_SIZE = 9,        /* EFBIG         between 1 byte and 16 TiB */
    PAGEMESH_E_NODE_GONE = 10,      /* EHOSTDOWN     the node that must answer is dead or has left */
    PAGEMESH_E_NOT_MEMBER = 11,     /* ENETDOWN      this node is in no cluster (any more) */
    PAGEMESH_E_LIMIT = 12,          /* ENOSPC        a limit was reached */
    PAGEMESH_E_INVALID = 13,        /* EINVAL        the call makes no sense */
    PAGEMESH_E_TIMED_OUT = 14,      /* ETIMEDOUT     the time limit of the call has passed */
    PAGEMESH_E_INTERRUPTED = 15,    /* EINTR         a signal handler ran */
    PAGEMESH_E_BUSY = 16,           /* EBUSY         pagemesh_trylock: the lock is held */
    PAGEMESH_E_NOT_HELD = 17,       /* EPERM         the lock is not held through this handle */
    PAGEMESH_E_FORKED = 18,         /* ESTALE        the connection is the parent's, and was not inherited */
    PAGEMESH_E_NO_USERFAULTFD = 19, /* EPERM         the kernel lets nobody serve this process's faults */
    PAGEMESH_E_MAP = 20,            /* ENOMEM        the memory could not be mapped */
    PAGEMESH_E_ADDRESS_TAKEN = 21,  /* EEXIST        something is mapped at the wished address */
    PAGEMESH_E_ENVIRONMENT = 22,    /* EINVAL        a variable of the environment is unusable */
    PAGEMESH_E_SYSTEM = 23,         /* as it was     the system failed unexpectedly */
    PAGEMESH_E_INTERNAL = 24,       /* ENOTRECOVERABLE  a bug in the library */
    PAGEMESH_E_CLOSED = 25,         /* EPIPE         the other end of the pipe is closed */
    PAGEMESH_E_PEER_DIED = 26       /* EOWNERDEAD    the process at the other end of the pipe died */
};

/* Why the last call of this thread that failed did so. */
int pagemesh_error(void);

/* The same in words, with the cure. Valid until this thread's next failure. */
const char *pagemesh_error_message(void);

/* What an error number means, in words. Never NULL. */
const char *pagemesh_strerror(int number);

/* ---- Connection ---- */

/* A connection to the daemon of this host, and through it to the cluster. */
typedef struct pagemesh pagemesh_t;

/* A segment that this process has open. */
typedef struct pagemesh_segment pagemesh_segment_t;

/* Connects to the daemon whose socket is at path; NULL means $PAGEMESH_SOCKET,
 * else $XDG_RUNTIME_DIR/pagemesh/pagemesh.sock, else /run/pagemesh/pagemesh.sock. */
pagemesh_t *pagemesh_connect(const char *path);

/* Gives the handle back. The connection ends when the last segment and mapping
 * made through it are gone too. NULL is ignored. */
void pagemesh_disconnect(pagemesh_t *mesh);

/* This node's number, from 1; 0 for NULL. */
unsigned pagemesh_node(const pagemesh_t *mesh);

/* ---- Segments ---- */

/* For pagemesh_open and pagemesh_map. */
#define PAGEMESH_RDONLY 0
#define PAGEMESH_RDWR 1

/* policy: every load sees the latest store made anywhere. */
#define PAGEMESH_SEQUENTIAL 0
/* policy: every load sees what happened before it by the segment's own locks and
 * barriers; many writers, whose changes are merged (docs/memory-model.md). manager
 * and window_ns mean nothing then. Changes travel when they are needed. */
#define PAGEMESH_RELEASE 1
/* policy: the same; changes travel at every release, to whoever uses the page. */
#define PAGEMESH_RELEASE_EAGER 2
/* policy: the same; small changes go along with locks and barriers. */
#define PAGEMESH_RELEASE_HYBRID 3
/* policy: one consistent copy of each page, which moves, and copies for reading that may be old. */
#define PAGEMESH_VIEWS 4

/* policy: the memory of the node that creates the segment, and of no other. Pages that
 * are not in its memory, local bytes of it at most, are in the idle memory of other
 * nodes and on its disk (docs/operating.md, "Memory"). A child of fork does not have
 * it: an access there ends in SIGSEGV. */
#define PAGEMESH_PRIVATE 5
/* policy: the same; pages go to two other nodes, and to the disk only if there are no two. */
#define PAGEMESH_PRIVATE_COPIES 6

/* manager: owner hints lead to the owner, who keeps the queue. */
#define PAGEMESH_DYNAMIC 0
/* manager: the node where the segment was created keeps the queue. */
#define PAGEMESH_FIXED 1

/* window_ns: half as long as it took to get the page, within bounds. */
#define PAGEMESH_WINDOW_AUTO (-1)

/* timeout_ns: no time limit. */
#define PAGEMESH_FOREVER (-1)

/* What the creator of a segment chooses. Start from PAGEMESH_OPTIONS_INIT. */
typedef struct pagemesh_options {
    uint32_t mode;        /* who may read and write: permission bits, as of a file */
    uint32_t exclusive;   /* not 0: fail if the name is taken, instead of opening */
    uint32_t policy;      /* PAGEMESH_SEQUENTIAL, PAGEMESH_RELEASE, ... */
    uint32_t manager;     /* PAGEMESH_DYNAMIC or PAGEMESH_FIXED */
    int64_t window_ns;    /* how long a node keeps a page it was granted */
    uint64_t local;       /* PAGEMESH_PRIVATE: bytes in this host's memory at most; or 0 */
    uint64_t prefix;      /* PAGEMESH_VIEWS: bytes of a short page, a multiple of 8; 0: 32 */
    uint64_t replicas;    /* not PAGEMESH_PRIVATE: other nodes that have what was published, seen or released: 0 or 1 */
    uint64_t reserved[1]; /* 0 */
} pagemesh_options_t;

#define PAGEMESH_OPTIONS_INIT \
    { 0600, 0, PAGEMESH_SEQUENTIAL, PAGEMESH_DYNAMIC, PAGEMESH_WINDOW_AUTO, 0, 0, 0, { 0 } }

/* Creates a segment of size bytes, or opens it for writing if it exists, which
 * then keeps its size and options. options may be NULL. Pages are zero and cost
 * nothing until they are touched. */
pagemesh_segment_t *pagemesh_create(pagemesh_t *mesh, const char *name, uint64_t size,
                                    const pagemesh_options_t *options);

/* Opens an existing segment; access is PAGEMESH_RDONLY or PAGEMESH_RDWR. */
pagemesh_segment_t *pagemesh_open(pagemesh_t *mesh, const char *name, int access);

/* A capability: a descriptor with which another process of this host may open the segment,
 * without its name and whatever its mode, as long as some process here has it open. It permits
 * what access says. Hand it over as descriptors are (SCM_RIGHTS, fork, exec); close(2) it.
 * -1 with EACCES for PAGEMESH_RDWR of a segment opened for loads. */
int pagemesh_capability(pagemesh_segment_t *segment, int access);

/* Opens the segment of a capability, for what that permits; the descriptor stays open. EINVAL
 * if it is none of a segment that is open on this host. */
pagemesh_segment_t *pagemesh_redeem(pagemesh_t *mesh, int capability);

/* Closes a segment; what is mapped stays until it is unmapped, locks held
 * through this handle are released. Never removes the segment. */
int pagemesh_close(pagemesh_segment_t *segment);

/* Its size in bytes, as its creator gave it; 0 for NULL. */
uint64_t pagemesh_size(const pagemesh_segment_t *segment);

/* Maps length bytes (0: all that follow) from byte offset on. offset and the
 * wished address, if not NULL, are multiples of the page size of 4096; what is
 * mapped at the address is never replaced. */
void *pagemesh_map(pagemesh_segment_t *segment, void *address, uint64_t offset, size_t length,
                   int access);

/* Unmaps what pagemesh_map returned. */
int pagemesh_unmap(void *address);

/* ---- Views of a segment of policy PAGEMESH_VIEWS ---- */

/* Bits of a view. 0 is the consistent copy of whole pages: it moves to this node at the
 * first access. PAGEMESH_VIEW_OLD is a copy for reading that may be old;
 * PAGEMESH_VIEW_SHORT has only the first bytes of each page (32, unless the segment says
 * otherwise); PAGEMESH_VIEW_NEXT, only together with PAGEMESH_VIEW_OLD, sends no request when
 * a page is absent, and sleeps until the next copy passes by. */
#define PAGEMESH_VIEW_SHORT 1
#define PAGEMESH_VIEW_NEXT 2
#define PAGEMESH_VIEW_OLD 4

/* Maps the segment once for each view, *stride bytes apart, a power of two. Returns the
 * address of view 0. A segment opened for reading has the views with PAGEMESH_VIEW_OLD. */
void *pagemesh_map_views(pagemesh_segment_t *segment, size_t *stride);

/* Unmaps what pagemesh_map_views returned. */
int pagemesh_unmap_views(void *base);

/* A pointer to the same byte in another view; no system call. */
static inline void *pagemesh_view(const void *pointer, size_t stride, int view)
{
    uintptr_t address = (uintptr_t)pointer;
    return (void *)((address & ~((uintptr_t)7 * stride)) | (uintptr_t)view * stride);
}

/* PURGE. Of a view with PAGEMESH_VIEW_OLD: drops this node's copies of these bytes, so that the
 * next access fetches them, or sleeps until they pass. Of others: sends copies of their pages,
 * as one, to all nodes that use them, and returns when they are sent. */
int pagemesh_purge(pagemesh_segment_t *segment, int view, uint64_t offset, uint64_t length);

/* Page-out: these bytes are not needed here for a while. Copies leave this node; a consistent
 * copy stays, and leaves memory. With PAGEMESH_VIEW_SHORT the first bytes of each page leave,
 * and whole pages stay, but leave all views until they are touched. */
int pagemesh_page_out(pagemesh_segment_t *segment, int view, uint64_t offset, uint64_t length);

/* Locks pages into this node, one second at most, until pagemesh_write_unlock of the same bytes.
 * The view is 0 or PAGEMESH_VIEW_SHORT. EINVAL if a consistent copy is on another node; it is
 * asked for: lock again. PAGEMESH_VIEW_SHORT takes the pages out of all views of whole pages;
 * they are back at the next access. */
int pagemesh_lock_view(pagemesh_segment_t *segment, int view, uint64_t offset, uint64_t length);

/* ---- Boards: state that one process publishes and many watch ---- */

typedef struct pagemesh_board pagemesh_board_t;

/* What is known of a state. */
typedef struct pagemesh_state {
    uint64_t number;   /* from 1 on; 0: nothing was published yet */
    uint64_t age_ns;   /* since it was published, by the clocks of the two hosts */
    uint64_t missed;   /* states between the one read before and this one */
    uint64_t length;   /* in bytes */
    uint32_t writer;   /* the node that published it */
    uint32_t went_back; /* 1: newer states that were read are lost with their nodes */
} pagemesh_state_t;

/* Creates a board for states of at most size bytes, up to 16 MiB, of which the last history
 * (1 to 1024) stay readable; opens the one of this name if it exists. */
pagemesh_board_t *pagemesh_board_create(pagemesh_t *mesh, const char *name, size_t size,
                                        uint32_t history, uint32_t mode);

/* The same; with replicas = 1, another node has the states, too, and they outlive the node of their
 * writer. */
pagemesh_board_t *pagemesh_board_create_replicated(pagemesh_t *mesh, const char *name, size_t size,
                                                   uint32_t history, uint32_t mode,
                                                   uint32_t replicas);

/* Opens a board; access is PAGEMESH_RDONLY or PAGEMESH_RDWR. A board handle is used by one
 * thread at a time. */
pagemesh_board_t *pagemesh_board_open(pagemesh_t *mesh, const char *name, int access);

/* Closes a board. Never removes it: see pagemesh_remove. */
int pagemesh_board_close(pagemesh_board_t *board);

/* Bytes of the largest state; 0 for NULL. */
size_t pagemesh_board_size(const pagemesh_board_t *board);

/* Publishes a state, and returns its number, or -1. Waits for no reader. */
int64_t pagemesh_board_publish(pagemesh_board_t *board, const void *state, size_t length);

/* Copies the newest whole state, at most capacity bytes of it, and returns its length, or -1;
 * 0, with number 0, if there is none. state may be NULL. */
ssize_t pagemesh_board_read(pagemesh_board_t *board, void *bytes, size_t capacity,
                            pagemesh_state_t *state);

/* 1 if the process that published the state that was read last died, or closed the board; else
 * 0, or -1. Its last state stays. */
int pagemesh_board_writer_is_gone(pagemesh_board_t *board);

/* Sleeps until there is a state with a greater number, and returns the newest one's, or -1. */
int64_t pagemesh_board_wait(pagemesh_board_t *board, uint64_t newer_than, int64_t timeout_ns);

/* ---- Pipes: messages between two processes ---- */

/* One end of a pipe. Threads may use it at once. */
typedef struct pagemesh_pipe pagemesh_pipe_t;

/* Which end: one that is not open, or a certain one. */
#define PAGEMESH_PIPE_FREE 0
#define PAGEMESH_PIPE_FIRST 1
#define PAGEMESH_PIPE_SECOND 2

/* What pagemesh_pipe_peer returns. */
#define PAGEMESH_PEER_ABSENT 0 /* no process has opened the other end yet */
#define PAGEMESH_PEER_OPEN 1
#define PAGEMESH_PEER_CLOSED 2
#define PAGEMESH_PEER_DEAD 3 /* its process died, or its node */

/* The longest message of a pipe of two pages. */
#define PAGEMESH_PIPE_SIZE 4032

/* Creates a pipe for messages of at most size bytes, up to 16 MiB, or opens the one of this
 * name, and takes an end of it. An end is open in one process at a time. */
pagemesh_pipe_t *pagemesh_pipe_create(pagemesh_t *mesh, const char *name, size_t size, int end,
                                      uint32_t mode);

/* Opens an existing pipe. */
pagemesh_pipe_t *pagemesh_pipe_open(pagemesh_t *mesh, const char *name, int end);

/* Closes the end, and tells the other one. A message that was not read stays for the next
 * process that opens the other end. Never removes the pipe: see pagemesh_remove. */
int pagemesh_pipe_close(pagemesh_pipe_t *pipe);

/* Bytes of the longest message; 0 for NULL. */
size_t pagemesh_pipe_size(const pagemesh_pipe_t *pipe);

/* What is known of the other end: PAGEMESH_PEER_OPEN and so on, or -1. A death is found out by
 * a thread that waits, within some seconds. */
int pagemesh_pipe_peer(const pagemesh_pipe_t *pipe);

/* Sends a message; waits, for timeout_ns at most (without limit if negative), until the one
 * before has been read. It arrives whole or not at all. */
int pagemesh_pipe_send(pagemesh_pipe_t *pipe, const void *message, size_t length,
                       int64_t timeout_ns);

/* Receives the next message and returns its length, or -1. One that is longer than capacity
 * is refused with EINVAL, and stays. When there is none left: EPIPE if the other end is closed,
 * EOWNERDEAD if its process died. */
ssize_t pagemesh_pipe_receive(pagemesh_pipe_t *pipe, void *message, size_t capacity,
                              int64_t timeout_ns);

/* The two pointers of a pipe: to the data of the message from the other end, and to the place
 * for the next message of this end. Each has room for pagemesh_pipe_size bytes. */
int pagemesh_pipe_pointers(const pagemesh_pipe_t *pipe, const void **read, void **write);

/* Waits until a message can be stored at the write pointer; then sends so many bytes of it. */
int pagemesh_pipe_wait_writable(pagemesh_pipe_t *pipe, int64_t timeout_ns);
int pagemesh_pipe_write_done(pagemesh_pipe_t *pipe, size_t length);

/* Waits until there is a message at the read pointer, and returns its length, or -1; then says
 * that it has been read and may be replaced. */
ssize_t pagemesh_pipe_wait_readable(pagemesh_pipe_t *pipe, int64_t timeout_ns);
int pagemesh_pipe_read_done(pagemesh_pipe_t *pipe);

/* ---- Groups: csend and crecv ---- */

/* A process in a group of numbered processes, which has a pipe to each other one. */
typedef struct pagemesh_group pagemesh_group_t;

/* What is known of a message. */
typedef struct pagemesh_received {
    int64_t kind;
    uint64_t length;   /* in bytes */
    uint32_t from;     /* who sent it */
    uint32_t reserved; /* 0 */
} pagemesh_received_t;

/* Joins a group as process number of count (at most 64), for messages of at most size bytes. If
 * name is NULL, this is the group of the process's job, and number and count mean nothing. */
pagemesh_group_t *pagemesh_group_join(pagemesh_t *mesh, const char *name, unsigned number,
                                      unsigned count, size_t size, uint32_t mode);

/* Leaves the group: closes the pipes. */
int pagemesh_group_leave(pagemesh_group_t *group);

/* Removes the names of the group's pipes; one process does so, when no other one will send or
 * receive for the first time any more. */
int pagemesh_group_remove(pagemesh_group_t *group);

/* The number of this process, and how many there are; 0 for NULL. */
unsigned pagemesh_group_number(const pagemesh_group_t *group);
unsigned pagemesh_group_count(const pagemesh_group_t *group);

/* Sends a message of a kind, 0 or more, to another process: as pagemesh_pipe_send. */
int pagemesh_csend(pagemesh_group_t *group, int64_t kind, const void *message, size_t length,
                   unsigned to, int64_t timeout_ns);

/* Receives the next message of a kind (any, if negative) from a process (any, if negative):
 * as pagemesh_pipe_receive. Messages of other kinds wait. received may be NULL. */
ssize_t pagemesh_crecv(pagemesh_group_t *group, int64_t kind, int64_t from, void *message,
                       size_t capacity, pagemesh_received_t *received, int64_t timeout_ns);

/* Removes a name, at once; who has the segment open keeps it, and it is gone
 * when the last one closes it. */
int pagemesh_remove(pagemesh_t *mesh, const char *name);

/* What is known of a segment. */
typedef struct pagemesh_stat {
    uint64_t id;        /* unique in the cluster for ever */
    uint64_t size;      /* in bytes */
    uint32_t mode;      /* permission bits */
    uint32_t uid;       /* owner */
    uint32_t gid;       /* group */
    uint32_t home;      /* the node that created it */
    uint32_t attached;  /* on how many nodes it is open */
    uint32_t removed;   /* not 0: its name was removed */
    uint32_t policy;    /* as in pagemesh_options_t */
    uint32_t manager;   /* as in pagemesh_options_t */
    int64_t window_ns;  /* as in pagemesh_options_t */
    uint64_t replicas;  /* as in pagemesh_options_t */
    char name[256];     /* its name */
} pagemesh_stat_t;

/* Looks a segment up without opening it. */
int pagemesh_stat(pagemesh_t *mesh, const char *name, pagemesh_stat_t *stat);

/* Lists the segments of the cluster in order of their names: fills at most
 * capacity entries, and returns how many there are. */
ssize_t pagemesh_list(pagemesh_t *mesh, pagemesh_stat_t *entries, size_t capacity);

/* ---- Locks, conditions, barriers: any number of a segment is one of its own ---- */

/* Returned by locking functions instead of 0: the last holder died holding the
 * lock, so what it guards may be half-written. The lock is held. */
#define PAGEMESH_RECOVERED 1

/* Takes a lock. It belongs to the process: another thread may unlock it. Not
 * recursive. Returns 0 or PAGEMESH_RECOVERED. */
int pagemesh_lock(pagemesh_segment_t *segment, uint64_t lock);

/* The same if it is free, else EBUSY. While the lock is on another node this
 * takes up to 20 ms. */
int pagemesh_trylock(pagemesh_segment_t *segment, uint64_t lock);

/* The same, else ETIMEDOUT after timeout_ns nanoseconds. */
int pagemesh_timedlock(pagemesh_segment_t *segment, uint64_t lock, int64_t timeout_ns);

/* Releases a lock taken through this handle. */
int pagemesh_unlock(pagemesh_segment_t *segment, uint64_t lock);

/* Releases the lock, waits for a signal, takes the lock again; no signal given
 * after the release is missed. Check what was waited for in a loop. Returns 0
 * or PAGEMESH_RECOVERED. After EINTR the lock is held. */
int pagemesh_cond_wait(pagemesh_segment_t *segment, uint64_t cond, uint64_t lock);

/* The same, for at most timeout_ns nanoseconds; after ETIMEDOUT the lock is held. */
int pagemesh_cond_timedwait(pagemesh_segment_t *segment, uint64_t cond, uint64_t lock,
                            int64_t timeout_ns);

/* Wakes one waiter, if there is one; returns how many were woken. */
int pagemesh_cond_signal(pagemesh_segment_t *segment, uint64_t cond);

/* Wakes all waiters; returns how many were woken. */
int pagemesh_cond_broadcast(pagemesh_segment_t *segment, uint64_t cond);

/* Waits until so many parties of the whole cluster are here. */
int pagemesh_barrier_wait(pagemesh_segment_t *segment, uint64_t barrier, uint32_t parties);

/* The same, for at most timeout_ns nanoseconds; after ETIMEDOUT this party has
 * not arrived. */
int pagemesh_barrier_timedwait(pagemesh_segment_t *segment, uint64_t barrier, uint32_t parties,
                               int64_t timeout_ns);

/* Sleeps, without any traffic, while the byte at offset is expected. Returns its
 * new value, 0 to 255. Segments of policy release refuse it with EINVAL, whatever
 * the byte is: wait for a lock, a barrier or a condition variable instead. */
int pagemesh_wait_change(pagemesh_segment_t *segment, uint64_t offset, uint8_t expected,
                         int64_t timeout_ns);

/* How a process will use pages. */
#define PAGEMESH_ADVICE_NORMAL 0     /* nothing special */
#define PAGEMESH_ADVICE_SEQUENTIAL 1 /* from front to back: fetch more ahead */
#define PAGEMESH_ADVICE_RANDOM 2     /* here and there: fetch nothing ahead */
#define PAGEMESH_ADVICE_WILLNEED 3   /* these soon: fetch them, for reading */
#define PAGEMESH_ADVICE_DONTNEED 4   /* these not for a while: drop copies of them */
#define PAGEMESH_ADVICE_RENEW 5      /* policy views: lost pages begin anew with zeros, here */
#define PAGEMESH_ADVICE_DONTNEED_SHORT 6 /* policy views: as DONTNEED, of short pages */

/* Says how this process will use bytes; a length of 0 means up to the end. Only
 * RENEW changes what loads see, the others how soon. The first three and RENEW hold
 * for all of the segment. Does not wait for what it causes. Under policy release nothing is fetched
 * ahead without SEQUENTIAL or WILLNEED, and DONTNEED does nothing. */
int pagemesh_advise(pagemesh_segment_t *segment, uint64_t offset, uint64_t length, int advice);

/* Says that the pages of the bytes at these offsets will be touched soon, wherever they lie: they are
 * fetched together, for reading, in the order given. Does not wait for them. EINVAL for an offset
 * outside of the segment, or if the daemon is of an older release. */
int pagemesh_will_need(pagemesh_segment_t *segment, const uint64_t *offsets, size_t count);

/* How numbers that several nodes accumulated become one. */
#define PAGEMESH_SUM 0     /* what each added is added up; integers wrap around */
#define PAGEMESH_MIN 1     /* the least */
#define PAGEMESH_MAX 2     /* the greatest */
#define PAGEMESH_OR 3      /* bits that anybody set; integers only */
#define PAGEMESH_REPLACE 4 /* the last writer's, whole */

/* What numbers they are. */
#define PAGEMESH_U8 0
#define PAGEMESH_U16 1
#define PAGEMESH_U32 2
#define PAGEMESH_U64 3
#define PAGEMESH_I8 4
#define PAGEMESH_I16 5
#define PAGEMESH_I32 6
#define PAGEMESH_I64 7
#define PAGEMESH_FLOAT 8
#define PAGEMESH_DOUBLE 9

/* Declares that nodes accumulate in these bytes of a segment of policy
 * PAGEMESH_RELEASE without a lock, by atomic operations (__atomic_fetch_add); after
 * the next barrier all see the same.
 * offset and length are multiples of the size of a number; at most 64 ranges a
 * segment. Returns when every node knows. Declare before anybody stores there, and
 * let a barrier follow. */
int pagemesh_reduce(pagemesh_segment_t *segment, uint64_t offset, uint64_t length, int merge,
                    int kind);

/* Keeps the pages of these bytes on this node, writable, during a series of
 * stores; others wait until pagemesh_write_unlock, one second at most. At most
 * 4096 pages. No lock: processes of this host share the right. */
int pagemesh_write_lock(pagemesh_segment_t *segment, uint64_t offset, uint64_t length);

/* Lets them go; offset and length as they were given. */
int pagemesh_write_unlock(pagemesh_segment_t *segment, uint64_t offset, uint64_t length);

/* ---- Jobs ---- */

/* The processes that one launcher started together: `pagemesh run`,
 * `pagemesh sandbox`, mpirun, srun. */
typedef struct pagemesh_job pagemesh_job_t;

/* Joins the job that PAGEMESH_JOB, PAGEMESH_RANK and PAGEMESH_SIZE, or their
 * equals of other launchers, describe. A process started alone is 0 of 1. */
pagemesh_job_t *pagemesh_job_open(pagemesh_t *mesh);

/* Gives the handle back. NULL is ignored. */
void pagemesh_job_close(pagemesh_job_t *job);

/* This process's number, from 0. */
uint32_t pagemesh_job_rank(const pagemesh_job_t *job);

/* How many processes there are; 0 for NULL. */
uint32_t pagemesh_job_size(const pagemesh_job_t *job);

/* The job's own small segment, for its locks, conditions and barriers. Valid
 * until the job is closed; not to be closed by itself. */
pagemesh_segment_t *pagemesh_job_segment(pagemesh_job_t *job);

/* ---- A shared heap ---- */

/* A heap that all processes of a job share: a block has the same address in all
 * of them, so pointers into it may be stored in it. */
typedef struct pagemesh_heap pagemesh_heap_t;

/* Makes the heap of a job, together with its other processes, for which this
 * waits; all must say the same. reserve is the bytes of address space, 64 KiB
 * to 4 TiB, rounded up to a power of two; 0 means 256 GiB. Memory that nobody
 * touches costs nothing. Of the options, which may be NULL, only policy, manager
 * and window_ns count. */
pagemesh_heap_t *pagemesh_heap_open(pagemesh_t *mesh, pagemesh_job_t *job, uint64_t reserve,
                                    const pagemesh_options_t *options);

/* Gives the handle back, and unmaps the heap, which ends with its last user.
 * NULL is ignored. */
void pagemesh_heap_close(pagemesh_heap_t *heap);

/* A block of at least so many bytes, aligned to its size: a power of two, 16 or
 * more. Fresh memory is zero; what was freed and is given again is not. NULL
 * and ENOSPC if there is no room. */
void *pagemesh_heap_alloc(pagemesh_heap_t *heap, size_t bytes);

/* Gives a block back, in whatever process; EINVAL if it is none. */
int pagemesh_heap_free(pagemesh_heap_t *heap, void *block);

/* Reads one of 64 shared numbers, 0 at first: where to begin. */
int pagemesh_heap_root(pagemesh_heap_t *heap, unsigned slot, uint64_t *value);

/* Changes it. As with all shared memory, synchronize. */
int pagemesh_heap_set_root(pagemesh_heap_t *heap, unsigned slot, uint64_t value);

/* The segment it lies in, for its locks, conditions and barriers, with numbers
 * below 2^40. Valid until the heap is closed; not to be closed by itself. */
pagemesh_segment_t *pagemesh_heap_segment(pagemesh_heap_t *heap);

/* ---- Looking inside ---- */

/* health */
#define PAGEMESH_ALIVE 0
#define PAGEMESH_LEFT 1
#define PAGEMESH_DEAD 2
#define PAGEMESH_REVOKED 3   /* put out for good */
#define PAGEMESH_FORGOTTEN 4 /* dead, and missed by nobody any more */

/* A node that ever joined the cluster. */
typedef struct pagemesh_member {
    uint32_t node;    /* its number */
    uint32_t health;  /* one of the above */
    char name[256];   /* its name */
    char address[64]; /* where its daemon listens */
} pagemesh_member_t;

/* Lists all nodes: fills at most capacity entries, returns how many there are. */
ssize_t pagemesh_members(pagemesh_t *mesh, pagemesh_member_t *entries, size_t capacity);

/* How many nanoseconds a call takes to a node and back through every layer. */
int pagemesh_probe(pagemesh_t *mesh, unsigned node, uint64_t *nanos);

/* One counter of this node. */
typedef struct pagemesh_counter {
    char name[64];  /* its name */
    uint64_t value; /* since the daemon started */
} pagemesh_counter_t;

/* Reads all counters of this node: fills at most capacity entries, returns how
 * many there are. */
ssize_t pagemesh_counters(pagemesh_t *mesh, pagemesh_counter_t *entries, size_t capacity);

/* Where a time stamp was taken. */
#define PAGEMESH_STAMP_PROGRAM 0     /* by pagemesh_stamp */
#define PAGEMESH_STAMP_FAULT 1       /* a fault reached the daemon */
#define PAGEMESH_STAMP_ASKED 2       /* a request for a page left */
#define PAGEMESH_STAMP_ARRIVED 3     /* page contents or ownership arrived */
#define PAGEMESH_STAMP_MAPPED 4      /* the page was mapped and the thread woken */
#define PAGEMESH_STAMP_GIVEN 5       /* a copy or ownership was given away */
#define PAGEMESH_STAMP_INVALIDATED 6 /* a copy was invalidated */

/* One time stamp of this node. */
typedef struct pagemesh_timestamp {
    uint64_t number; /* counts up from 0; a gap means that it was read too late */
    uint64_t nanos;  /* of this node's monotonic clock */
    uint64_t tag;    /* the program's tag, or the page */
    uint32_t what;   /* PAGEMESH_STAMP_... */
    uint32_t unused; /* 0 */
} pagemesh_timestamp_t;

/* Puts a mark into this node's time stamps. */
int pagemesh_stamp(pagemesh_t *mesh, uint64_t tag);

/* Reads time stamps from number from on: fills at most capacity entries and
 * returns how many; go on with one more than the last number. */
ssize_t pagemesh_stamps(pagemesh_t *mesh, uint64_t from, pagemesh_timestamp_t *entries,
                        size_t capacity);

#ifdef __cplusplus
}
#endif

#endif /* PAGEMESH_H */
