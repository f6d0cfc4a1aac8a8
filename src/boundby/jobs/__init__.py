"""One answer for a job of many ranks: each rank's report becomes a compact summary, summaries become one report."""
