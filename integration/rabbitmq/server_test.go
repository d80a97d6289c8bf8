package rabbitmq

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/daybook-go/daybook/integration/brokertest"
)

const remedy = "apt-get install --no-install-recommends rabbitmq-server (its service is not needed, and need not run)"

// folders are where Debian puts what is not in PATH.
var folders = []string{"/usr/lib/rabbitmq/bin", "/usr/sbin", "/usr/local/sbin", "/opt/homebrew/sbin"}

// serve starts a node with all its files in a folder of the test. It listens on 127.0.0.1 only: the broker itself, the
// port between nodes, and the name server of Erlang, which is one of its own too.
func serve(t *testing.T, settings string) brokertest.Server {
	t.Helper()
	// The script of the distribution insists on the user rabbitmq; the one below it does not.
	program := brokertest.Installed(t, "/usr/lib/rabbitmq/bin/rabbitmq-server", remedy, folders...)
	names := brokertest.Installed(t, "epmd", remedy)
	folder := t.TempDir()
	port := func() string {
		_, p, err := net.SplitHostPort(brokertest.FreeAddress(t))
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	namesPort, nodePort, between := port(), port(), port()
	write := func(name, text string) string {
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	env := append(os.Environ(),
		"HOME="+folder, // for the cookie
		"ERL_EPMD_ADDRESS=127.0.0.1", "ERL_EPMD_PORT="+namesPort,
		"RABBITMQ_NODENAME=daybook"+nodePort+"@localhost",
		"RABBITMQ_NODE_IP_ADDRESS=127.0.0.1", "RABBITMQ_NODE_PORT="+nodePort, "RABBITMQ_DIST_PORT="+between,
		"RABBITMQ_MNESIA_BASE="+filepath.Join(folder, "mnesia"),
		"RABBITMQ_LOG_BASE="+filepath.Join(folder, "log"), "RABBITMQ_LOGS=-",
		"RABBITMQ_PID_FILE="+filepath.Join(folder, "pid"),
		"RABBITMQ_GENERATED_CONFIG_DIR="+filepath.Join(folder, "generated"), "RABBITMQ_SCHEMA_DIR="+filepath.Join(folder, "schema"),
		"RABBITMQ_ENABLED_PLUGINS_FILE="+write("enabled_plugins", "[].\n"),
		"RABBITMQ_CONF_ENV_FILE="+write("env.conf", ""),
		"RABBITMQ_CONFIG_FILE="+write("rabbitmq.conf", "disk_free_limit.absolute = 50MB\nlog.console.level = warning\n"+settings),
		"RABBITMQ_ADVANCED_CONFIG_FILE="+filepath.Join(folder, "advanced.config"),
		// Idle schedulers must not spin on a machine that has other work.
		"RABBITMQ_ALLOW_INPUT=1", // no shell stays between us and the node
		"RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS=-noinput -kernel inet_dist_use_interface {127,0,0,1} +S 2:2 +sbwt none +sbwtdcpu none +sbwtdio none",
	)
	namesAt := "127.0.0.1:" + namesPort
	brokertest.ServeCommand(t, t.TempDir(), namesAt, func() *exec.Cmd {
		return exec.Command(names, "-address", "127.0.0.1", "-port", namesPort)
	}, func(ctx context.Context, address string) error {
		var d net.Dialer
		conn, err := d.DialContext(ctx, "tcp", address)
		if err != nil {
			return err
		}
		return conn.Close()
	})
	return brokertest.ServeCommand(t, folder, fmt.Sprintf("amqp://guest:guest@127.0.0.1:%s/", nodePort), func() *exec.Cmd {
		cmd := exec.Command(program)
		cmd.Dir, cmd.Env = folder, env
		return cmd
	}, func(_ context.Context, url string) error {
		conn, err := amqp091.Dial(url)
		if err != nil {
			return err
		}
		return conn.Close()
	})
}
