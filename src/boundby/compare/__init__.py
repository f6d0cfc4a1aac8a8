"""Two reports set side by side, and limits that a report or a comparison must keep."""
