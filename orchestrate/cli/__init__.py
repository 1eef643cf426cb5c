"""The command line: parse, call, print, exit. One module a command, imported only when it is used."""
