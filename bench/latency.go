package main

import "context"

func latencyFigures(ctx context.Context, e *env) ([]figure, error) { return nil, nil }
