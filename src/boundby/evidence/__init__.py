"""Facts about a program that rules argue with: each belongs to one part."""
