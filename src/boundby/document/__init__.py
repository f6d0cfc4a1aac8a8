"""What people read, as data: the words, what is shown and in what order. What draws it is in `boundby.render`."""
