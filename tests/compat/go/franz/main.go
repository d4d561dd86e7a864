// Transactions of franz-go, of the second protocol where the cluster has it. Arguments:
//
//	transactions SERVERS TOPIC TRANSACTIONAL-ID
//	loop SERVERS SOURCE TARGET GROUP TRANSACTIONAL-ID PROTOCOL
//
// The first writes a value to both partitions of the topic in each of six transactions, each third one aborted, and
// prints which error a producer gets that another has fenced. The second reads, processes and writes until it is
// killed, as a member of a group of the protocol classic or consumer, and prints how many records it has moved.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	transactions = 6
	pollRecords  = 5

	// A loop that was killed is missed after this.
	sessionTimeout     = 2 * time.Second
	heartbeatInterval  = 300 * time.Millisecond
	transactionTimeout = 5 * time.Second
)

func main() {
	arguments := os.Args[2:]
	switch os.Args[1] {
	case "transactions":
		writeTransactions(arguments[0], arguments[1], arguments[2])
	case "loop":
		loop(arguments[0], arguments[1], arguments[2], arguments[3], arguments[4], arguments[5])
	}
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func producer(servers, topic, transactionalID string) *kgo.Client {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(servers),
		kgo.TransactionalID(transactionalID),
		kgo.DefaultProduceTopic(topic),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
	)
	check(err)
	return client
}

func write(client *kgo.Client, value string) {
	for partition := range int32(2) {
		record := &kgo.Record{Partition: partition, Value: []byte(value)}
		check(client.ProduceSync(context.Background(), record).FirstErr())
	}
}

func writeTransactions(servers, topic, transactionalID string) {
	ctx := context.Background()
	zombie := producer(servers, topic, transactionalID)
	for number := range transactions {
		check(zombie.BeginTransaction())
		write(zombie, fmt.Sprintf("value %d", number))
		check(zombie.EndTransaction(ctx, kgo.TransactionEndTry(number%3 != 2)))
	}

	check(zombie.BeginTransaction())
	write(zombie, "of a zombie")
	successor := producer(servers, topic, transactionalID)
	check(successor.BeginTransaction())
	write(successor, "of its successor")
	check(successor.EndTransaction(ctx, kgo.TryCommit))
	var refused *kerr.Error
	if !errors.As(zombie.EndTransaction(ctx, kgo.TryCommit), &refused) {
		log.Fatal("the zombie was not refused")
	}
	fmt.Println(refused.Message)
}

func loop(servers, source, target, group, transactionalID, protocol string) {
	ctx := context.Background()
	if protocol == "consumer" {
		//lint:ignore SA1029 franz-go asks for this very key
		ctx = context.WithValue(ctx, "opt_in_kafka_next_gen_balancer_beta", true)
	}
	session, err := kgo.NewGroupTransactSession(
		kgo.WithContext(ctx),
		kgo.SeedBrokers(servers),
		kgo.ConsumerGroup(group),
		kgo.ConsumeTopics(source),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.SessionTimeout(sessionTimeout),
		kgo.HeartbeatInterval(heartbeatInterval),
		kgo.TransactionalID(transactionalID),
		kgo.TransactionTimeout(transactionTimeout),
		kgo.DefaultProduceTopic(target),
	)
	check(err)
	moved := 0
	for {
		fetches := session.PollRecords(ctx, pollRecords)
		check(fetches.Err())
		check(session.Begin())
		written := kgo.AbortingFirstErrPromise(session.Client())
		fetches.EachRecord(func(record *kgo.Record) {
			session.Produce(ctx, &kgo.Record{Value: record.Value}, written.Promise())
		})
		committed, err := session.End(ctx, written.Err() == nil)
		check(err)
		if committed {
			moved += fetches.NumRecords()
			fmt.Println("committed", moved)
		}
	}
}
