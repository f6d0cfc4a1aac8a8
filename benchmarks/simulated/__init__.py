"""What tests and benchmarks draw from the simulator, and no user needs: programs at random, untidy ones, jobs of many
ranks, and the profiler's format."""
