"""The protocol between the kernel's side and a plugin, without any I/O, clock or thread.

    header    the ten bytes in front of a body
    frames    bytes to frames, and fragments to messages
    codec     bodies to strict values and back; `refusals` says what is wrong with one
    messages  the types and the fields of their bodies
    tables    which frame is legal when, for both roles
    credits   windows
    events    what a session tells its owner
    outbox    what waits to be written
    session   all of it together: start there
    errors    codes of failed calls, reasons of failed connections

Import from the submodules; this file loads nothing, because a worker pays for every module.
"""
