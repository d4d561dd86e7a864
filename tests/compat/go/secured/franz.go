package main

import (
	"context"
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

const (
	retries = 0
	maxWait = 20 * time.Second
)

type franz struct{}

func (franz) client(one testCase, options ...kgo.Opt) *kgo.Client {
	options = append(options,
		kgo.SeedBrokers(one.Servers),
		kgo.DialTLSConfig(tlsConfig(one)),
		kgo.RequestRetries(retries),
		kgo.RecordRetries(retries),
	)
	if one.Mechanism != "" {
		options = append(options, kgo.SASL(mechanism(one)))
	}
	client, err := kgo.NewClient(options...)
	check(err)
	return client
}

func mechanism(one testCase) sasl.Mechanism {
	switch one.Mechanism {
	case "PLAIN":
		return plain.Auth{User: one.User, Pass: one.Password}.AsMechanism()
	case "SCRAM-SHA-256":
		return scram.Auth{User: one.User, Pass: one.Password}.AsSha256Mechanism()
	case "SCRAM-SHA-512":
		return scram.Auth{User: one.User, Pass: one.Password}.AsSha512Mechanism()
	}
	return oauth.Auth{Token: one.Token}.AsMechanism()
}

func (its franz) write(one testCase) error {
	client := its.client(one)
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), maxWait)
	defer cancel()
	return client.ProduceSync(ctx, &kgo.Record{Topic: one.Topic, Value: []byte("x")}).FirstErr()
}

func (its franz) read(one testCase) error {
	client := its.client(one,
		kgo.ConsumerGroup(one.Group),
		kgo.ConsumeTopics(one.Topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
	)
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), maxWait)
	defer cancel()
	// Polling would try to connect for ever.
	if err := client.Ping(ctx); err != nil {
		return err
	}
	for {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil || fetches.NumRecords() > 0 {
			return err
		}
	}
}

func (franz) name(err error) string {
	var refused *kerr.Error
	if errors.As(err, &refused) {
		return refused.Message
	}
	return err.Error()
}
