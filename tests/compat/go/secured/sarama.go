package main

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/IBM/sarama"
	"github.com/xdg-go/scram"
)

type ibm struct{}

func (ibm) config(one testCase) *sarama.Config {
	config := sarama.NewConfig()
	config.Version = sarama.MaxVersion
	config.Metadata.Retry.Max = 0
	config.Producer.Return.Successes = true
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Return.Errors = true
	config.Net.TLS.Enable = true
	config.Net.TLS.Config = tlsConfig(one)
	if one.Mechanism == "" {
		return config
	}
	login := &config.Net.SASL
	login.Enable, login.Mechanism = true, sarama.SASLMechanism(one.Mechanism)
	login.User, login.Password = one.User, one.Password
	login.TokenProvider = tokenOf(one.Token)
	hash := scram.SHA512
	if one.Mechanism == sarama.SASLTypeSCRAMSHA256 {
		hash = scram.SHA256
	}
	login.SCRAMClientGeneratorFunc = func() sarama.SCRAMClient { return &scramClient{hash: hash} }
	return config
}

type tokenOf string

func (text tokenOf) Token() (*sarama.AccessToken, error) {
	return &sarama.AccessToken{Token: string(text)}, nil
}

// What Sarama has its users write.
type scramClient struct {
	*scram.ClientConversation
	hash scram.HashGeneratorFcn
}

func (client *scramClient) Begin(user, password, authorization string) error {
	its, err := client.hash.NewClient(user, password, authorization)
	if err == nil {
		client.ClientConversation = its.NewConversation()
	}
	return err
}

func (its ibm) write(one testCase) error {
	producer, err := sarama.NewSyncProducer([]string{one.Servers}, its.config(one))
	if err != nil {
		return err
	}
	defer producer.Close()
	_, _, err = producer.SendMessage(&sarama.ProducerMessage{Topic: one.Topic, Value: sarama.StringEncoder("x")})
	return err
}

// One record is enough.
type firstRecord struct{ done context.CancelFunc }

func (firstRecord) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (firstRecord) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (first firstRecord) ConsumeClaim(_ sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	if _, came := <-claim.Messages(); came {
		first.done()
	}
	return nil
}

func (its ibm) read(one testCase) error {
	group, err := sarama.NewConsumerGroup([]string{one.Servers}, one.Group, its.config(one))
	if err != nil {
		return err
	}
	defer group.Close()
	limit, stop := context.WithTimeout(context.Background(), maxWait)
	defer stop()
	ctx, cancel := context.WithCancel(limit)
	defer cancel()
	failed := make(chan error, 1)
	go func() { failed <- group.Consume(ctx, []string{one.Topic}, firstRecord{cancel}) }()
	select {
	case err = <-failed:
	case err = <-group.Errors():
	case <-time.After(maxWait):
	}
	return errors.Join(err, limit.Err())
}

// Sarama keeps the text alone of why it could connect to no broker.
func (ibm) name(err error) string {
	for code, name := range errorNames {
		if errors.Is(err, code) || strings.Contains(err.Error(), code.Error()) {
			return name
		}
	}
	return err.Error()
}

var errorNames = map[sarama.KError]string{
	sarama.ErrSASLAuthenticationFailed: "SASL_AUTHENTICATION_FAILED",
	sarama.ErrTopicAuthorizationFailed: "TOPIC_AUTHORIZATION_FAILED",
	sarama.ErrGroupAuthorizationFailed: "GROUP_AUTHORIZATION_FAILED",
}
