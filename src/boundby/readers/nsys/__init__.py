"""The reader of nsys SQLite exports."""
