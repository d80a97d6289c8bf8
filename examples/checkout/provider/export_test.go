package provider

import "context"

// ChanceOf is what the provider makes of an order and a seed.
var ChanceOf = chanceOf

// Book books a charge without an answer.
func Book(p *Provider, ctx context.Context, key string, c Charge) (string, error) {
	b, err := p.charge(ctx, key, c)
	return b.outcome, err
}
