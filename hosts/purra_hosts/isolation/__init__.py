"""Isolation of workers on Linux: what the host decides (`policy`), and what the worker does to
itself before foreign code runs in it (`jail`).

The host knows paths, grants and system call numbers, and turns them into rules and filter bytes
(`folders`, `landlock`, `seccomp`, `bpf`, `syscalls`); the worker only hands them to the kernel, and
then tries what it must not be able to do. So nearly everything here is pure and tested as data.
`machine` finds out, once per host, what the kernel allows, by doing it.

Left out on purpose, because each reaches into the program that embeds this host: making the host
undumpable (its memory is out of reach of a jailed worker anyway; it would end debuggers and core
dumps of the embedder) and making it a subreaper (it would adopt, and have to reap, what the
embedder's other children left behind; without the grant `subprocess` there is nothing to adopt).
"""
