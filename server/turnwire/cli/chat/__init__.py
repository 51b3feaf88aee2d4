"""`turnwire chat`: a plain prompt for terminals, pipes and scripts.

Text goes in and text comes out, without escape codes. The console and the terminal program are the rich clients.
`prompt` sends and follows, `printer` prints answers, `asking` answers permissions and questions.
"""
