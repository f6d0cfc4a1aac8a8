"""From the timeline to what it means: figures per device and region, verdicts, confidence, the checklist."""
