// Package order carries out orders to disconnect and to unsubscribe clients, on every node.
package order
