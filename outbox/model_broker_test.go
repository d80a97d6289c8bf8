package outbox_test

// The broker of the model: a queue for each group, in partitions of its own. The hostile one loses, repeats and shuffles,
// and is dead at times; the perfect one keeps the order of every key.

const modelBrokerPartitions = 3

type modelBroker struct {
	run    *modelRun
	dead   bool
	queues map[string]*[modelBrokerPartitions][]modelEnvelope // by group
}

// publish reports whether the broker took a message. It may lose what it took, and deliver what it refused.
func (b *modelBroker) publish(e modelEnvelope) (taken bool) {
	run := b.run
	if !e.head && !e.skip && run.bad[e.content] {
		if !run.chance(20) {
			return false
		}
		run.note("the broker refuses %v and delivers it", e)
		b.deliver(e)
		return false
	}
	b.deliver(e)
	return true
}

func (b *modelBroker) deliver(e modelEnvelope) {
	run := b.run
	b.deliverInboxes(e)
	key := e.partition
	if run.rules.keyIsStream {
		key = e.stream + e.stream/modelPartitions // the streams of one partition of ours lie in several of the broker
	}
	for _, c := range run.consumers {
		queues := b.queues[c.group]
		if queues == nil || c.topic != e.topic {
			continue
		}
		queue := &queues[key%modelBrokerPartitions]
		if run.world.perfect {
			*queue = append(*queue, e)
			continue
		}
		copies := 1
		switch {
		case b.dead || run.chance(10):
			copies = 0
			run.note("the broker loses %v for %s", e, c.group)
		case run.chance(10):
			copies = 2
		}
		for range copies {
			*queue = append(*queue, e)
			if last := len(*queue) - 1; run.chance(25) {
				other := last - run.random(min(last, 8)+1)
				(*queue)[last], (*queue)[other] = (*queue)[other], (*queue)[last]
			}
		}
	}
}

// subscribe makes the group's queues, if it has none: what was published before does not come.
func (b *modelBroker) subscribe(group string) {
	if b.queues[group] == nil {
		b.queues[group] = &[modelBrokerPartitions][]modelEnvelope{}
	}
}

// receive takes a message from one of the group's partitions, by chance.
func (b *modelBroker) receive(group string) (modelEnvelope, bool) {
	queues := b.queues[group]
	first := b.run.random(modelBrokerPartitions)
	for i := range modelBrokerPartitions {
		queue := &queues[(first+i)%modelBrokerPartitions]
		if len(*queue) > 0 {
			e := (*queue)[0]
			*queue = (*queue)[1:]
			return e, true
		}
	}
	return modelEnvelope{}, false
}
