// Transactions of Sarama: values and offsets, each third one aborted, then a producer that another has fenced.
// Arguments: the servers, the topic written, the topic whose offsets are committed, the group. It prints the code of
// the error that the fenced producer gets.
package main

import (
	"errors"
	"fmt"
	"log"
	"os"

	"github.com/IBM/sarama"
)

const transactions = 6

func main() {
	servers, topic, source, group := os.Args[1], os.Args[2], os.Args[3], os.Args[4]
	zombie := producer(servers, group)
	for number := range transactions {
		check(zombie.BeginTxn())
		write(zombie, topic, fmt.Sprintf("value %d", number))
		next := []*sarama.PartitionOffsetMetadata{{Partition: 0, Offset: int64(number + 1), LeaderEpoch: -1}}
		check(zombie.AddOffsetsToTxn(map[string][]*sarama.PartitionOffsetMetadata{source: next}, group))
		if number%3 == 2 {
			check(zombie.AbortTxn())
		} else {
			check(zombie.CommitTxn())
		}
	}

	check(zombie.BeginTxn())
	write(zombie, topic, "of a zombie")
	successor := producer(servers, group)
	check(successor.BeginTxn())
	write(successor, topic, "of its successor")
	check(successor.CommitTxn())
	var refused sarama.KError
	if !errors.As(zombie.CommitTxn(), &refused) {
		log.Fatal("the zombie was not refused")
	}
	fmt.Println(int(refused)) // Sarama has no name for PRODUCER_FENCED
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func producer(servers, transactionalID string) sarama.SyncProducer {
	config := sarama.NewConfig()
	config.Version = sarama.MaxVersion
	config.Net.MaxOpenRequests = 1
	config.Producer.Idempotent = true
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Return.Successes = true
	config.Producer.Partitioner = sarama.NewManualPartitioner
	config.Producer.Transaction.ID = transactionalID
	producer, err := sarama.NewSyncProducer([]string{servers}, config)
	check(err)
	return producer
}

func write(producer sarama.SyncProducer, topic, value string) {
	for partition := range int32(2) {
		message := &sarama.ProducerMessage{Topic: topic, Partition: partition, Value: sarama.StringEncoder(value)}
		_, _, err := producer.SendMessage(message)
		check(err)
	}
}
