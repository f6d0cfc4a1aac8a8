"""`boundby prove`: the verdict, tested on the running program."""
