"""`turnwire chat`: a client in a terminal.

`start` chooses the form that fits. `plain` is text in and text out. `room` is the prompt at a terminal,
with `view` for what it shows. The libraries of the prompt take longer to import than most commands run, so only `start`
imports `room`, when it is needed.
"""
