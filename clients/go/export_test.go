package turnwire

import "time"

// WithSilence sets after how long a server that sends nothing is gone.
func WithSilence(limit time.Duration) Option {
	return func(s *settings) { s.silence = limit }
}
