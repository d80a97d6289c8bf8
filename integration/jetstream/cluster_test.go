package jetstream

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/daybook-go/daybook/integration/brokertest"
)

// cluster is three nodes in this process. Its first restart is the loss of a node for good, the one that leads the stream;
// its second takes one of the two that are left away and brings it back, so that there is no majority in between.
type cluster struct {
	t       *testing.T
	opts    []*server.Options
	nodes   []*Server
	lost    string // name
	address string
}

const clusterPatience = 30 * time.Second

func newCluster(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{t: t}
	folder := t.TempDir()
	var routes []*url.URL
	var ports []int
	for range 3 {
		u, err := url.Parse("nats://" + brokertest.FreeAddress(t))
		if err != nil {
			t.Fatal(err)
		}
		routes = append(routes, u)
		var port int
		if _, err := fmt.Sscan(u.Port(), &port); err != nil {
			t.Fatal(err)
		}
		ports = append(ports, port)
	}
	var addresses []string
	for i, port := range ports {
		name := fmt.Sprint("node", i)
		opts := &server.Options{
			ServerName: name, StoreDir: filepath.Join(folder, name), Routes: routes,
			Cluster: server.ClusterOpts{Name: "daybook", Host: "127.0.0.1", Port: port},
		}
		address := brokertest.FreeAddress(t)
		addresses = append(addresses, address)
		if _, err := fmt.Sscan(address[strings.LastIndex(address, ":")+1:], &opts.Port); err != nil {
			t.Fatal(err)
		}
		c.opts = append(c.opts, opts)
		node, err := start(opts)
		if err != nil {
			t.Fatal(err)
		}
		c.nodes = append(c.nodes, node)
	}
	c.address = strings.Join(addresses, ",")
	t.Cleanup(func() {
		for _, n := range c.nodes {
			n.Close()
		}
	})
	c.eventually("the nodes find each other", func() error { return ready(t.Context(), "nats://"+c.address) })
	c.eventually("the stream is made", func() error { return MakeStream(t.Context(), "nats://"+c.address, brokertest.Topic, 3) })
	return c
}

func (c *cluster) eventually(what string, try func() error) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), clusterPatience)
	defer cancel()
	if _, err := brokertest.Connect(ctx, func() (struct{}, error) { return struct{}{}, try() }); err != nil {
		c.t.Fatalf("%s: %v", what, err)
	}
}

func (c *cluster) Address() string { return c.address }

func (c *cluster) Restart() error {
	leader, err := c.leader()
	if err != nil {
		return err
	}
	for i, o := range c.opts {
		if (c.lost == "") != (o.ServerName == leader) || o.ServerName == c.lost {
			continue
		}
		c.nodes[i].Close()
		if c.lost == "" {
			c.lost = leader
			c.t.Logf("%s, which led the stream, is lost for good", leader)
			return nil
		}
		c.t.Logf("%s is taken away too, and comes back", o.ServerName)
		c.nodes[i], err = start(o)
		return err
	}
	return errors.New("there is no node to restart")
}

// leader is the node that leads the stream.
func (c *cluster) leader() (name string, err error) {
	conn, err := nats.Connect("nats://" + c.address)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	js, err := conn.JetStream()
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(context.Background(), clusterPatience)
	defer cancel()
	return brokertest.Connect(ctx, func() (string, error) {
		info, err := js.StreamInfo(brokertest.Topic, nats.Context(ctx))
		if err != nil {
			return "", err
		}
		if info.Cluster == nil || info.Cluster.Leader == "" {
			return "", errors.New("the stream has no leader")
		}
		return info.Cluster.Leader, nil
	})
}

// A node is lost for good in the middle of everything, and no message with it.
func TestTortureCluster(t *testing.T) {
	brokertest.Torture(t, clients, newCluster(t))
}
