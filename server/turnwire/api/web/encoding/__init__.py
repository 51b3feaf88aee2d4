"""Pieces of the protocols that know no request: codecs, compression, envelopes, deadlines and statuses."""
