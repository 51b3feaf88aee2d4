module github.com/turnwire/turnwire/generated/go

go 1.24
