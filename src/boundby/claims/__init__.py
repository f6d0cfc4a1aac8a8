"""From figures and replay to what they mean: the bound, how sure, why, the checklist, and the report's parts."""
