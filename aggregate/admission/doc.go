// Package admission decides what is done when not everything can be: it stands in front of everything else, lets
// requests in while there is room, lets a few wait, and sends the others away before anything was done for them.
package admission
