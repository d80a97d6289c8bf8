package pgserver

import "context"

// Own starts a throw-away server from installed binaries. Closing the handle
// ends it and removes its data.
func Own(opts Options) Source {
	return Source{Name: "own server", Open: func(ctx context.Context) (Handle, error) {
		s, err := start(ctx, opts)
		if err != nil {
			return Handle{}, err
		}
		return Handle{URL: s.URL(), Detail: s.Detail(), Close: s.Close}, nil
	}}
}
