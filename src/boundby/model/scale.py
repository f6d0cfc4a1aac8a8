"""How much is much: the one scale on which shares are judged, whatever they are shares of.

A share of time, of bytes, of calls or of a set is negligible, slight, small, notable, a quarter, half, most or nearly
all of its whole. Which of these a decision needs is part of the decision; how large each is, is settled here, once. A
decision that needs a number between two of them depends on its tuning, and wants a better idea.
"""

from __future__ import annotations

NEGLIGIBLE = 0.01  # nobody would change a program for it
MARGIN = 0.02  # a model of a run is no more exact
SLIGHT = 0.03  # repeated runs of one program differ by so much
SMALL = 0.05  # seen in a picture, decides nothing
NOTABLE = 0.1  # has to be named
QUARTER = 0.25
HALF = 0.5
MOST = 0.8
NEARLY_ALL = 0.9  # what is left is edges: starts, ends, launches
HARDLY = 0.005  # vanishes in rounding
NEXT_TO_NOTHING = 0.001  # no figure shows it

# Of counts.
HABIT = 3  # once is an accident, twice may be chance
SEVERAL = 8  # a pattern: by chance there are fewer
MANY = 20  # chance has evened out
PLENTY = 1_000  # so many tell what all would
CROWD = 10_000  # nobody tells as many apart, and no list of them is kept
MOST_MEMBERS = 1 << 20  # GPUs or ranks of a job: the largest machines have fewer
LEVELS = 3  # of a tree that are told apart
DEEPEST = 64  # levels: no program nests deeper, but by recursion

# Of how many times as much.
HALF_MORE = 1.5  # ordinary steps, waits and samples vary by less
TENFOLD = 10  # something else has happened

# Of time.
SWITCH_NS = 1_000  # the quickest switch of threads, or from one operation to the next
CLOCK_ERROR_NS = 2_000  # stamps of one instant differ by so much
LAUNCH_NS = 10_000  # on its way from the host to the device, or from a thread to the one that it wakes
BUSY_NS = 60_000  # what takes a few microseconds takes some tens on a busy machine
DISPATCH_NS = 100_000  # what a framework does from one launch to the next
NO_LAUNCH_NS = 1_000_000  # neither takes as long

# Of programs and people that are waited for.
LOOK_S = 0.2  # between two looks whether something has happened
MOMENT_S = 2.0  # what nobody notices: the end of what has nothing left to do
GRACE_S = 20.0  # for who has to put things away first
ANSWER_S = 60.0  # of a program that starts: GPUs wake up, files come over a network
PATIENCE_S = 600  # of what works for minutes: a server that loads a model, an export, an analysis

# Of memory: what is worked on at once stays in a core's cache.
DENSE = 4  # places of a table for each of its rows: as quick as to sort them
ROOM = 1 << 14  # rows, places of a table
PIECE_BYTES = 1 << 20  # read or written at once

# Of what a reader takes in: names in a sentence, rows in a list, rows in a table.
A_FEW_LINES = 3
HANDFUL = 5  # the best of a list, where the rest is folded away
LIST = 8
RANKING = 10
GLANCE = 12
ONE_BY_ONE = 16
TABLE = 40
PAGE_ROWS = 300  # of a table of the page, which is searched and scrolled
CURVE = 240  # points
DRAWN = 20_000  # things drawn one by one in a page: some 20 characters each

# Of what stands beside other things, in cells or characters.
NARROW = 16  # the least in which a name, a bar or prose is read
COLUMN = 40  # a column of names or reasons
LABEL = 60  # a name beside others; a bar that tells hundredths
TWO_LINES = 200  # a sentence or a path that is the trace's own
