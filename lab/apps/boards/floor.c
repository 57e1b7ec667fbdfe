/* The floor: plain UDP multicast. A state is cut into pieces below the MTU; with GSO the kernel
 * gets many of them in one call and splits them after the stack. Who watches puts them together;
 * a piece of a newer state drops an unfinished older one, and the newest wins. Nothing is
 * repaired. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "board.h"

#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#endif
#ifndef UDP_GRO
#define UDP_GRO 104
#endif

/* What fits an Ethernet packet of 1500 bytes after the headers of IP and UDP, and of it the state's
 * bytes. As many datagrams go in one call as a packet of 64 KiB holds. */
enum { DATAGRAM = 1472, PIECE = DATAGRAM - 16, MOST = 44, QUEUE = 8 << 20, PORT = 7990 };

/* Packets that are taken for one answer. */
enum { DRAINED = 256 };

struct header {
    uint64_t number;
    uint32_t index, pieces;
};

struct board {
    int socket;
    struct sockaddr_in group;
    size_t size;
    uint32_t pieces, missing;
    int super;
    uint64_t number; /* the last one sent, or the one that is put together */
    unsigned char *have, *state;
    unsigned char buffer[1 << 16];
    size_t length, taken, segment; /* of the datagrams in buffer */
};

static void check(int result, const char *what)
{
    if (result < 0) {
        board_fail(what, strerror(errno));
    }
}

/* Every name has a group and a port. */
static struct sockaddr_in group_of(const char *name)
{
    uint32_t hash = 2166136261U;
    for (; *name; name++) {
        hash = (hash ^ (unsigned char)*name) * 16777619U;
    }
    struct sockaddr_in group = { .sin_family = AF_INET };
    group.sin_addr.s_addr = htonl(0xefff0000U | (hash & 0xffff));
    group.sin_port = htons((uint16_t)(PORT + hash % 1000));
    return group;
}

static void queue(int socket, int force, int plain)
{
    int bytes = QUEUE;
    if (setsockopt(socket, SOL_SOCKET, force, &bytes, sizeof bytes) < 0) {
        check(setsockopt(socket, SOL_SOCKET, plain, &bytes, sizeof bytes), "queue");
    }
}

struct board *board_open(const struct place *place, int writes)
{
    struct board *board = calloc(1, sizeof *board);
    struct in_addr own;
    int one = 1, zero = 0;
    if (board == NULL || inet_pton(AF_INET, place->address, &own) != 1) {
        board_fail("address", place->address);
    }
    board->group = group_of(place->name);
    board->size = place->size;
    board->super = place->super;
    board->pieces = (uint32_t)((place->size + PIECE - 1) / PIECE);
    board->have = calloc(1, board->pieces);
    board->state = calloc(1, place->size);
    board->socket = socket(AF_INET, SOCK_DGRAM, 0);
    check(board->socket, "socket");
    if (board->have == NULL || board->state == NULL) {
        board_fail("memory", strerror(errno));
    }
    if (writes) {
        check(setsockopt(board->socket, IPPROTO_IP, IP_MULTICAST_IF, &own, sizeof own), "device");
        check(setsockopt(board->socket, IPPROTO_IP, IP_MULTICAST_LOOP, &zero, sizeof zero), "loop");
        queue(board->socket, SO_SNDBUFFORCE, SO_SNDBUF);
        return board;
    }
    struct ip_mreq join = { board->group.sin_addr, own };
    check(setsockopt(board->socket, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one), "reuse");
    check(bind(board->socket, (struct sockaddr *)&board->group, sizeof board->group), "bind");
    check(setsockopt(board->socket, IPPROTO_IP, IP_ADD_MEMBERSHIP, &join, sizeof join), "join");
    if (place->super) {
        check(setsockopt(board->socket, IPPROTO_UDP, UDP_GRO, &one, sizeof one), "GRO");
    }
    queue(board->socket, SO_RCVBUFFORCE, SO_RCVBUF);
    return board;
}

static size_t length_of(const struct board *board, uint32_t index)
{
    size_t left = board->size - (size_t)index * PIECE;
    return left < PIECE ? left : PIECE;
}

/* Sends pieces from one on, as one call. */
static void send_some(struct board *board, const unsigned char *state, uint32_t from, uint32_t count)
{
    struct header headers[MOST];
    struct iovec parts[2 * MOST];
    for (uint32_t at = 0; at < count; at++) {
        uint32_t index = from + at;
        headers[at] = (struct header){ board->number, index, board->pieces };
        parts[2 * at] = (struct iovec){ &headers[at], sizeof headers[at] };
        parts[2 * at + 1] =
            (struct iovec){ (void *)(state + (size_t)index * PIECE), length_of(board, index) };
    }
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(uint16_t))] = { 0 };
    struct msghdr message = { .msg_name = &board->group,
                              .msg_namelen = sizeof board->group,
                              .msg_iov = parts,
                              .msg_iovlen = 2 * count };
    if (count > 1) {
        message.msg_control = control;
        message.msg_controllen = sizeof control;
        struct cmsghdr *option = CMSG_FIRSTHDR(&message);
        uint16_t segment = DATAGRAM;
        option->cmsg_level = IPPROTO_UDP;
        option->cmsg_type = UDP_SEGMENT;
        option->cmsg_len = CMSG_LEN(sizeof segment);
        memcpy(CMSG_DATA(option), &segment, sizeof segment);
    }
    if (sendmsg(board->socket, &message, 0) < 0 && errno != ENOBUFS) {
        board_fail("send", strerror(errno));
    }
}

void board_publish(struct board *board, const void *state)
{
    uint32_t each = board->super ? MOST : 1;
    board->number++;
    for (uint32_t from = 0; from < board->pieces; from += each) {
        uint32_t left = board->pieces - from;
        send_some(board, state, from, left < each ? left : each);
    }
}

/* Takes one datagram in: whether its state is whole now. */
static int take(struct board *board, const unsigned char *bytes, size_t length)
{
    struct header header;
    if (length < sizeof header) {
        return 0;
    }
    memcpy(&header, bytes, sizeof header);
    if (header.number < board->number || header.pieces != board->pieces ||
        header.index >= header.pieces ||
        length != sizeof header + length_of(board, header.index)) {
        return 0;
    }
    if (header.number > board->number) {
        board->number = header.number;
        board->missing = board->pieces;
        memset(board->have, 0, board->pieces);
    }
    if (board->have[header.index]) {
        return 0;
    }
    board->have[header.index] = 1;
    memcpy(board->state + (size_t)header.index * PIECE, bytes + sizeof header,
           length - sizeof header);
    return --board->missing == 0;
}

/* Gets one or more datagrams of a size: 0 if none came in time. */
static int receive(struct board *board, int timeout_ms)
{
    struct pollfd ready = { board->socket, POLLIN, 0 };
    struct iovec part = { board->buffer, sizeof board->buffer };
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int))];
    struct msghdr message = { .msg_iov = &part,
                              .msg_iovlen = 1,
                              .msg_control = control,
                              .msg_controllen = sizeof control };
    ssize_t got = recvmsg(board->socket, &message, MSG_DONTWAIT);
    if (got < 0 && poll(&ready, 1, timeout_ms) > 0) {
        message.msg_controllen = sizeof control;
        got = recvmsg(board->socket, &message, MSG_DONTWAIT);
    }
    if (got <= 0) {
        return 0;
    }
    board->length = board->segment = (size_t)got;
    board->taken = 0;
    for (struct cmsghdr *one = CMSG_FIRSTHDR(&message); one; one = CMSG_NXTHDR(&message, one)) {
        if (one->cmsg_level == IPPROTO_UDP && one->cmsg_type == UDP_GRO) {
            int segment;
            memcpy(&segment, CMSG_DATA(one), sizeof segment);
            board->segment = segment > 0 ? (size_t)segment : board->segment;
        }
    }
    return 1;
}

/* Takes in what was received: whether a state became whole. */
static int unpack(struct board *board, void *state)
{
    int whole = 0;
    while (board->taken < board->length) {
        size_t left = board->length - board->taken;
        size_t length = left < board->segment ? left : board->segment;
        if (take(board, board->buffer + board->taken, length)) {
            memcpy(state, board->state, board->size);
            whole = 1;
        }
        board->taken += length;
    }
    return whole;
}

int board_wait(struct board *board, void *state, int timeout_ms)
{
    int whole = 0;
    /* The newest state wins: what has queued up meanwhile is taken too, to a bound, since a
     * writer may be faster. */
    for (int received = 0; received < DRAINED; received++) {
        if (!receive(board, whole ? 0 : timeout_ms)) {
            break;
        }
        whole |= unpack(board, state);
    }
    return whole;
}
