"""What a thread waits on inside a call of the OS runtime or of message passing, told from the call's name alone."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import IntEnum

from boundby.model.late import expression
from boundby.model.scale import BUSY_NS, NOTABLE

# What an OS runtime call waits on. nsys records only calls that can block; those not named here (mmap, open,
# ioctl, pthread_create ...) work in the kernel on the thread's own behalf and count as running; of ioctl see
# `boundby.correlation.cpu_evidence.sleep_kinds`.
_BLOCKED_ON: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("lock", expression(r"mutex_(?:timed|clock)?lock|rwlock_\w*(?:rd|wr)lock|spin_lock|flock|futex|lockf")),
    ("condition", expression(r"cond_(?:timed|clock)?wait|barrier_wait|sem_(?:timed|clock)?wait|semop|semtimedop")),
    ("sleep", expression(r"sleep|pause$|sigsuspend|sigwait|sigtimedwait|alarm")),
    (
        "thread or process",
        expression(r"pthread_(?:timed|try|clock)?join|^wait(?:pid|id|3|4)?$|^system$|^p(?:open|close)$"),
    ),
    ("poll", expression(r"poll|select|epoll_p?wait|getevents|io_uring")),
    ("network", expression(r"recv|send(?!file)|accept|connect|getaddrinfo|gethostby|shutdown$")),
    ("queue", expression(r"^mq_|msgrcv|msgsnd")),
    (
        "file",
        expression(
            r"^(?:__)?p?(?:read|write)(?:v2?|64)?(?:_chk)?$|fread|fwrite|fgets|fgetc|fputs|getc|getline|fscanf|fsync"
            r"|fdatasync|sync_file_range|sendfile|copy_file_range|fflush|fputc|fclose|vfprintf|readahead|splice"
        ),
    ),
)

#: Calls that sleep until another thread ends it; those that give up after a time may end by themselves.
HAND_OVER = expression(r"cond_wait|barrier_wait|sem_wait")
#: Calls by which a thread lets others go that wait for a condition.
SIGNALS = expression(r"cond_(?:signal|broadcast)|sem_post")
#: From a waker's signal to the run of the thread it woke: a few microseconds, some tens on a busy machine.
WAKE_LIMIT_NS = BUSY_NS

#: What a thread waits on inside a call of message passing.
MESSAGES = "MPI"
#: What a call can block on; `sleep_kind` counts in this order.
SLEEPS: tuple[str, ...] = tuple(sorted((*(what for what, _ in _BLOCKED_ON), MESSAGES)))


def worth_naming(slept_ns: Mapping[str, int]) -> tuple[str, ...]:
    """Of what threads wait on, that which takes notably long beside the longest, the longest first."""
    ordered = sorted(slept_ns.items(), key=lambda item: (-item[1], item[0]))
    return tuple(kind for kind, ns in ordered if ns > NOTABLE * ordered[0][1])


def blocked_on(name: str) -> str | None:
    """What a thread waits on inside an OS runtime call, or None where the call does not block."""
    plain = name.rsplit("@", 1)[0]
    return next((what for what, pattern in _BLOCKED_ON if pattern.search(plain)), None)


def sleep_kind(name: str) -> int:
    """The place of ``blocked_on`` in `SLEEPS`; -1 where the call does not block."""
    what = blocked_on(name)
    return -1 if what is None else SLEEPS.index(what)


# What a call of message passing (MPI, UCX) does, told from its name alone.

#: The domain of ranges in which nsys 2022 records calls of MPI, and in which those of its later tables stand.
MPI_DOMAIN = "MPI"


class MessageKind(IntEnum):
    """What a call of message passing does."""

    OTHER = 0  # neither waits nor moves data: MPI_Comm_rank, MPI_Wtime
    BEGIN = 1  # begins a message or a collective and returns at once: MPI_Isend, MPI_Iallreduce
    START = 2  # starts the library: MPI_Init
    END = 3  # ends its use: MPI_Finalize
    COLLECTIVE = 4  # waits for other ranks of the communicator
    SEND = 5  # waits until the message may be changed again
    RECEIVE = 6  # waits for the message
    EXCHANGE = 7  # sends and receives
    WAIT = 8  # waits for what others began, or asks whether it is done


#: Kinds in which the caller waits for another rank, whether it sleeps or polls.
WAITING = (
    MessageKind.COLLECTIVE,
    MessageKind.SEND,
    MessageKind.RECEIVE,
    MessageKind.EXCHANGE,
    MessageKind.WAIT,
)
#: Kinds of what happens once, before the first and after the last message.
ONCE = (MessageKind.START, MessageKind.END)

_COLLECTIVE = (
    r"barrier|bcast|reduce(?!_local)\w*|allreduce|(?:all)?gatherv?|scatterv?|alltoall[vw]?|scan|exscan|neighbor_\w+"
)
_PATTERNS: tuple[tuple[MessageKind, re.Pattern[str]], ...] = tuple(
    (kind, expression(pattern, re.IGNORECASE))
    for kind, pattern in (
        (MessageKind.START, r"^P?MPI_(?:Init|Init_thread|Session_init)_?$"),
        (MessageKind.END, r"^P?MPI_(?:Session_finalize|Finalize)_?$"),
        (
            MessageKind.COLLECTIVE,
            rf"^P?MPI_(?:{_COLLECTIVE}|Comm_(?:split\w*|dup\w*|create\w*|spawn\w*|accept|connect|disconnect)"
            r"|Intercomm_(?:create\w*|merge)|Win_(?:create|allocate\w*|free|fence))_?$",
        ),
        (MessageKind.SEND, r"^P?MPI_[bsr]?send_?$"),
        (MessageKind.RECEIVE, r"^P?MPI_m?recv_?$"),
        (MessageKind.EXCHANGE, r"^P?MPI_sendrecv(?:_replace)?_?$"),
        (
            MessageKind.WAIT,
            r"^P?MPI_(?:wait\w*|test(?:any|all|some)?|i?m?probe|win_(?:lock\w*|unlock\w*|flush\w*|wait|test|start|"
            r"complete))_?$|^ucp_(?:worker_(?:wait\w*|flush)|ep_flush)$",
        ),
        (MessageKind.BEGIN, rf"^P?MPI_(?:i[bsr]?send|im?recv|isendrecv\w*|i(?:{_COLLECTIVE})|start(?:all)?)_?$"),
    )
)
_MPI = expression(r"^P?MPI_[A-Za-z]")
_SENDS = expression(r"^P?MPI_(?:i?[bsr]?send(?:_init)?|i?sendrecv\w*)_?$", re.IGNORECASE)
_RECEIVES = expression(r"^P?MPI_(?:i?m?recv(?:_init)?|i?sendrecv\w*)_?$", re.IGNORECASE)
_SYMMETRIC = expression(r"^P?MPI_i?(?:barrier|all(?:reduce|gather|to)\w*|reduce_scatter\w*)_?$", re.IGNORECASE)


def is_mpi(name: str) -> bool:
    """True for the name of a call of MPI."""
    return bool(_MPI.match(name))


def message_kind(name: str) -> MessageKind:
    """What the call of this name does."""
    return next((kind for kind, pattern in _PATTERNS if pattern.match(name)), MessageKind.OTHER)


def sends(name: str) -> bool:
    """True for a call that sends a message to one rank, or begins to."""
    return bool(_SENDS.match(name))


def receives(name: str) -> bool:
    """True for a call that receives a message of one rank, or begins to."""
    return bool(_RECEIVES.match(name))


def is_symmetric(name: str) -> bool:
    """True for a collective that no rank leaves before all have come."""
    return bool(_SYMMETRIC.match(name))
