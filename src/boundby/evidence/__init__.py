"""Facts about a program that rules argue with: functions of the context, each worked out when a rule first asks."""
