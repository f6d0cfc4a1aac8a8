/* Programs of MPI whose trouble is known, by their first argument. Rounds of some milliseconds; rank 1 is to blame where
   there are two, rank 0 in "serial". */
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { ROUNDS = 15, WORK_MS = 8, FLUSH_MS = 400, SMALL = 16, LARGE = 4 << 20, TAG = 7 };

static void rest(long ms) {
    struct timespec left = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&left, NULL);
}

static double spin(long ms) {
    struct timespec start, now;
    double sum = 0;
    clock_gettime(CLOCK_MONOTONIC, &start);
    do {
        for (int i = 1; i < 1000; i++) sum += 1.0 / i;
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while ((now.tv_sec - start.tv_sec) * 1000 + (now.tv_nsec - start.tv_nsec) / 1000000 < ms);
    return sum;
}

static void late_sender(int rank, char *data) {
    if (rank == 1) {
        rest(WORK_MS);
        MPI_Send(data, SMALL, MPI_CHAR, 0, TAG, MPI_COMM_WORLD);
    } else {
        MPI_Recv(data, SMALL, MPI_CHAR, 1, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
}

static void late_receiver(int rank, char *data) { /* large, so that the send waits for the receiver */
    if (rank == 0) {
        MPI_Send(data, LARGE, MPI_CHAR, 1, TAG, MPI_COMM_WORLD);
    } else {
        rest(WORK_MS);
        MPI_Recv(data, LARGE, MPI_CHAR, 0, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
}

static void late_begun(int rank, char *data) {
    MPI_Request request;
    if (rank == 1) {
        rest(WORK_MS);
        MPI_Isend(data, SMALL, MPI_CHAR, 0, TAG, MPI_COMM_WORLD, &request);
    } else {
        MPI_Irecv(data, SMALL, MPI_CHAR, 1, TAG, MPI_COMM_WORLD, &request);
    }
    MPI_Waitall(1, &request, MPI_STATUSES_IGNORE);
}

static void exchange(int rank, char *data) { /* both ways at once, to one rank and with one tag */
    if (rank == 1) rest(WORK_MS);
    MPI_Sendrecv(data, SMALL, MPI_CHAR, 1 - rank, TAG, data + SMALL, SMALL, MPI_CHAR, 1 - rank, TAG, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
}

static void imbalance(int rank) {
    double sum = spin(rank == 1 ? WORK_MS : 1), all;
    MPI_Allreduce(&sum, &all, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
}

static void serial(int rank, char *data) {
    if (rank == 0) rest(WORK_MS);
    MPI_Bcast(data, SMALL, MPI_CHAR, 0, MPI_COMM_WORLD);
    MPI_Barrier(MPI_COMM_WORLD);
}

static void deadlock(int rank, char *data) { /* both wait for a message that nobody sends */
    alarm(2);
    MPI_Recv(data, SMALL, MPI_CHAR, 1 - rank, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static void crash(int rank) {
    if (rank == 1) {
        rest(FLUSH_MS); /* what was recorded until then is on its way */
        raise(SIGSEGV);
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

int main(int count, char **arguments) {
    const char *what = count > 1 ? arguments[1] : "";
    char *data = calloc(1, LARGE);
    int rank;
    MPI_Init(&count, &arguments);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Barrier(MPI_COMM_WORLD);
    for (int round = 0; round < ROUNDS; round++) {
        if (!strcmp(what, "late_sender")) late_sender(rank, data);
        else if (!strcmp(what, "late_receiver")) late_receiver(rank, data);
        else if (!strcmp(what, "late_begun")) late_begun(rank, data);
        else if (!strcmp(what, "exchange")) exchange(rank, data);
        else if (!strcmp(what, "imbalance")) imbalance(rank);
        else if (!strcmp(what, "serial")) serial(rank, data);
        else if (!strcmp(what, "deadlock")) deadlock(rank, data);
        else if (!strcmp(what, "crash")) crash(rank);
    }
    MPI_Finalize();
    free(data);
    return 0;
}
