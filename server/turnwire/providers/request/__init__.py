"""From neutral requests to each API's form: what all adapters share."""
