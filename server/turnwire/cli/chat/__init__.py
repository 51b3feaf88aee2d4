"""`turnwire chat`: a client in a terminal.

`start` chooses the form that fits input and output. `plain` is text in and text out.
"""
